"""The charts of a report as data, and how a page embeds them."""

from __future__ import annotations

import statistics

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")
pytest.importorskip("vl_convert", reason="the report needs vl-convert-python: pip install 'adaxopt[lab]'")

import altair as alt
from report_records import EPOCHS, LEVELS, own_figure, record, study

from adaxlab.errors import LabError
from adaxlab.report import (
    charts,
    embed,
    palette,
    series,
)
from adaxlab.report.judged import judged
from adaxlab.report.page import render
from adaxlab.report.rows import differences

# -- charts ---------------------------------------------------------------------------------------------------


def rows_of(chart, *fields):
    """The rows of a chart's data that have these fields."""
    data = chart.to_dict()["datasets"].values()
    return [r for rows in data for r in rows if all(f in r for f in fields)]


def test_charts_hold_what_the_records_say():
    [one] = series.studies(study())
    made = {p.name: p.chart for p in charts.figures(one)}
    assert list(made) == ["metric", "train-loss", "loss-time", "seeds", "lr", "difference", "time"]
    dots = rows_of(made["seeds"], "seed", "value")
    assert len(dots) == 4 * 5 - 1
    for dot in dots:
        assert dot["value"] == pytest.approx(
            record(dot["optimizer"], int(dot["seed"])).done["metric"], rel=1e-5
        )
    [lost] = rows_of(made["seeds"], "seeds")
    assert (lost["optimizer"], lost["text"], lost["seeds"]) == ("adamw", "✕ 1 diverged", "3")
    last = {r["optimizer"]: r["mean"] for r in rows_of(made["metric"], "mean", "low") if r["x"] == EPOCHS}
    finals = {o: [record(o, s).done["metric"] for s in range(5) if (o, s) != ("adamw", 3)] for o in LEVELS}
    assert last == pytest.approx({o: statistics.mean(v) for o, v in finals.items()}, rel=1e-5)
    crosses = [r for r in rows_of(made["lr"], "lr", "text") if r["text"] == "diverged"]
    assert [(c["optimizer"], c["lr"]) for c in crosses] == [("adaxw", 0.015)]
    assert {r["optimizer"] for r in rows_of(made["difference"], "low", "verdict")} == {
        "sgdm",
        "adamw",
        "amsgradw",
    }


def test_lower_is_better_turns_the_order_round():
    records = study(higher=False, metric_name="perplexity", diverged=())
    [one] = series.studies(records)
    assert one.ranked[0].label == "adaxw"
    assert "lower is better" in charts.figures(one)[0].caption
    assert all(r["mean"] < 0 for r in rows_of(differences(one, judged(one, "adaxw")), "verdict"))


def test_one_seed_and_no_tuning_still_make_a_report():
    [one] = series.studies([record("adamw"), record("adaxw")])
    assert [p.name for p in charts.figures(one)] == ["metric", "train-loss", "loss-time", "seeds", "time"]


def test_rates_that_nobody_tuned_are_said_beside_the_verdict():
    runs = [record(name, seed) for name in ("adamw", "adaxw") for seed in range(3)]
    tuned = [record(name, 7, "tune", lr=lr) for name in ("adamw", "adaxw") for lr in (1e-3, 1e-2)]
    variants = [
        record("adaxw", seed, options=options) for seed in range(3) for options in ((), (("eps", 1e-3),))
    ]
    said = ["not tuned in this study" in render(records) for records in (runs, runs + tuned, variants)]
    assert said == [True, False, False]


def test_where_every_run_diverged_the_page_says_so():
    runs = [record(name, seed, status="diverged") for name in ("adamw", "adaxw") for seed in range(3)]
    text = render(runs)
    assert "Every final run of every method diverged" in text
    assert "No final run has finished yet" not in text
    assert "picked after the runs" not in text
    assert "Every final run diverged" not in render([*runs, record("adamw", 3)])


def test_tuning_alone_makes_a_report():
    [one] = series.studies([record("adamw", 7, "tune", lr=lr) for lr in (1e-4, 1e-3, 1e-2)])
    assert [p.name for p in charts.figures(one)] == ["lr"]
    assert "No final run has finished yet" in render([*one.records])


def tuned_rows():
    """AdamW in rows with two weight decays, each tuned with two seeds, and a row that was not tuned."""
    runs = [
        record("adamw", seed, "tune", lr=lr, metric=metric, options=(("weight_decay", decay),))
        for decay, better in ((0.1, 0.0), (0.01, 0.02))
        for lr, results in ((1e-3, (0.8, 0.9)), (1e-2, (0.84, 0.85)))
        for seed, metric in enumerate(result + better for result in results)
    ]
    runs += [
        record("adamw", seed, lr=1e-3, options=(("weight_decay", decay), *more))
        for seed in (8, 9)
        for decay, *more in ((0.1,), (0.01,), (0.001, ("eps", 1e-3)))
    ]
    for run in runs:
        run.spec["row"] = f"decay {run.spec['options']['weight_decay']}"
    return runs


def over_rates(runs):
    """The study, its line over the learning rates, and its rings."""
    [one] = series.studies(runs)
    [chart] = (figure.chart for figure in charts.figures(one) if figure.name == "lr")
    lines = {(r["optimizer"], r["lr"]): r["value"] for r in rows_of(chart, "part")}
    return one, lines, {(r["optimizer"], r["lr"]): r["value"] for r in chart.layer[1].data.values}


def test_the_line_over_the_learning_rates_is_that_of_each_row_and_of_the_mean_over_seeds():
    one, lines, rings = over_rates(tuned_rows())
    made = {("0.1", 1e-3): 0.85, ("0.1", 1e-2): 0.845, ("0.01", 1e-3): 0.87, ("0.01", 1e-2): 0.865}
    assert lines == pytest.approx({(f"decay {decay}", lr): v for (decay, lr), v in made.items()})
    assert rings == {key: value for key, value in lines.items() if key[1] == 1e-3}
    assert sorted(one.names) == ["decay 0.001", "decay 0.01", "decay 0.1"]


def test_settings_that_share_their_tuning_have_the_line_of_their_row():
    runs = tuned_rows()
    more = [record("adamw", 7, lr=1e-2, options=(("weight_decay", decay),)) for decay in (0.1, 0.01)]
    for run in more:
        run.spec["row"] = f"decay {run.spec['options']['weight_decay']}"
    _, lines, rings = over_rates([*runs, *more])
    assert lines == over_rates(runs)[1]
    assert rings == lines  # each row has final runs at both rates


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1e-4, 1e-1], [1e-4, 1e-3, 1e-2, 1e-1]),
        ([0.02, 0.3], [0.03, 0.1, 0.3]),
        ([0.5], [0.5]),
        ([1e-9, 1e9], [1e-9, 1e-6, 1e-3, 1, 1e3, 1e6, 1e9]),
        ([], []),
    ],
)
def test_ticks_of_logarithmic_axes(values, ticks):
    from adaxlab.report.encoding import log_ticks

    assert log_ticks(values) == pytest.approx(ticks)


def test_a_variant_has_one_look_in_all_charts_and_on_the_page():
    runs = [
        record(seed=s, options={"b2": b}.items(), metric=m + s / 999)
        for s in range(3)
        for b, m in ((1, 0.8), (2, 0.9))
    ]
    runs += [record(seed=s, study="later", options={"b2": b}.items()) for s in range(3) for b in (2, 3)]
    runs += [record(seed=9, purpose="tune", lr=lr) for lr in (0.1, 0.2)]
    seen: dict[str, set[str]] = {}
    every = series.studies(runs)
    for picture in (p for one in every for p in charts.figures(one)):
        for part in embed._walk(picture.chart.to_dict()):
            if isinstance(part, dict) and part.get("field") == "optimizer" and "#" in str(part.get("scale")):
                for label, shade in zip(part["scale"]["domain"], part["scale"]["range"], strict=True):
                    seen.setdefault(label, set()).add(shade)
    assert set(seen) == {"adaxw", "adaxw, b2=1", "adaxw, b2=2", "adaxw, b2=3"}
    assert [len(v) for v in seen.values()] == [1] * 4
    assert seen["adaxw"] == {palette.LOOKS["adaxw"].light}
    assert seen == {
        name: {look.light} for name, look in palette.looks([n for s in every for n in s.names]).items()
    }


# -- embedding ------------------------------------------------------------------------------------------------


def filters(spec):
    return [
        t["filter"] for part in embed._walk(spec) if isinstance(part, dict) for t in part.get("transform", [])
    ]


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (own_figure, 1),
        (lambda: alt.layer(own_figure(), own_figure().mark_point()), 2),
        (lambda: alt.hconcat(own_figure(), own_figure()), 2),
        (lambda: own_figure().encode(color=alt.value("red")), 0),
    ],
    ids=["single", "layers", "concat", "other"],
)
def test_switches_reach_every_view_that_shows_optimizers(make, count):
    spec = embed.prepare(embed.as_dict(make()), palette.looks(["adam", "adaxw"]))
    assert filters(spec) == ["indexof(hidden, datum.optimizer) < 0"] * count
    assert [p["name"] for p in spec.get("params", [])] == (["hidden"] if count else [])
    assert embed.labels_in(spec) == ["adam", "adaxw"]


def test_colours_become_variables_and_data_stay():
    look = palette.LOOKS["adaxw"]
    rows = [{"optimizer": "adaxw", "note": look.light}]
    given = {
        "data": {"values": rows},
        "mark": {"type": "line", "color": look.light.upper()},
        "$schema": "https://x",
    }
    spec = embed.prepare(embed.as_dict(given), {"adaxw": look})
    assert spec["mark"]["color"] == f"var({embed.variable(look)})"
    assert spec["data"]["values"] == rows
    assert "$schema" not in spec
    assert given["mark"]["color"] == look.light.upper()


def test_a_figure_from_the_network_is_refused():
    with pytest.raises(LabError, match=r"https://example.org/a.csv.*put the rows into the chart"):
        embed.as_dict({"data": {"url": "https://example.org/a.csv"}, "mark": "line"})
    with pytest.raises(LabError, match="figure of type int"):
        embed.as_dict(3)
