"""The report's numbers against independent ones, its charts as data, its errors."""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import re
import statistics
from dataclasses import replace

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")
pytest.importorskip("vl_convert", reason="the report needs vl-convert-python: pip install 'adaxopt[lab]'")

import altair as alt
from report_records import EPOCHS, LEVELS, own_figure, record, study

from adaxlab import stats, store
from adaxlab.answer import answer
from adaxlab.errors import LabError
from adaxlab.report import (
    charts,
    embed,
    numbers,
    palette,
    save_static,
    series,
    tables,
    write_report,
)
from adaxlab.report.judged import judged
from adaxlab.report.page import render
from adaxlab.store import RunRecord
from adaxlab.study import Row, Study, Tuning
from adaxlab.summary import UNTUNED, summarise

CLOSE = {"sgdm": 0.9, "adamw": 0.9005, "adaxw": 0.901}

# -- numbers --------------------------------------------------------------------------------------------------


def test_summary_against_the_statistics_module():
    """Oracle: statistics.mean and stdev, and t = 2.776445 for five seeds."""
    [one] = series.studies(study(diverged=())[::-1])
    assert one.labels == ["sgdm", "adamw", "amsgradw", "adaxw"], (
        "the order of the zoo, whatever that of the records"
    )
    rows = tables.summary(one, judged(one))
    assert [r.label for r in rows] == ["adaxw", "sgdm", "amsgradw", "adamw"]
    for r in rows:
        runs = [record(r.label, seed) for seed in range(5)]
        values = [run.done["metric"] for run in runs]
        half = 2.776445 * statistics.stdev(values) / math.sqrt(5)
        assert r.mean == pytest.approx(statistics.mean(values), rel=1e-12)
        assert (r.low, r.high) == pytest.approx((r.mean - half, r.mean + half), rel=1e-6)
        assert r.seconds == pytest.approx(statistics.mean(run.done["seconds"] for run in runs))
        assert r.n == 5
    assert rows[0].verdict == "base"


def test_intervals_are_those_of_the_statistics_of_the_lab():
    values = [0.91, 0.93, 0.92, 0.925]
    e = stats.t_interval(values)
    assert numbers.interval(values) == (e.mean, e.low, e.high)
    assert numbers.interval([0.5]) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("mine", "base", "higher", "kind"),
    [
        ([0.95, 0.951, 0.949], [0.9, 0.902, 0.899], True, "better"),
        ([0.95, 0.951, 0.949], [0.9, 0.902, 0.899], False, "worse"),
        ([0.85, 0.851, 0.849], [0.9, 0.902, 0.899], True, "worse"),
        ([0.90, 0.92, 0.88], [0.91, 0.89, 0.9], True, "inconclusive"),
        ([0.95, 0.951], [0.9, 0.901], True, "none"),
    ],
)
def test_verdicts(mine, base, higher, kind):
    runs = [record("adaxw", i, metric=m if higher else 1 - m, higher=higher) for i, m in enumerate(mine)]
    runs += [record("adamw", i, metric=m if higher else 1 - m, higher=higher) for i, m in enumerate(base)]
    [one] = series.studies(runs)
    found = judged(one, "adamw")
    assert found.verdicts["adaxw"].outcome == kind
    row = next(r for r in tables.summary(one, found) if r.label == "adaxw")
    assert row.verdict == kind
    assert row.leads == (kind == "better")
    assert (f"{len(mine)} pairs" in row.note) == (kind != "none")
    assert ("No verdict: n = 2" in tables.headline(one, tables.summary(one, found), found)) == (
        kind == "none"
    )


def beside(tmp_path, runs, plan):
    """The runs as a store has them, with their study beside them."""
    (tmp_path / "study.json").write_text(json.dumps({"schema": 2, **plan.data()}))
    return [replace(r, path=tmp_path / r.path.name) for r in runs]


def test_the_study_beside_its_runs_decides(tmp_path):
    rule = stats.DecisionRule(confidence=0.9, margin=0.5)
    plan = Study(
        "digits", tuple(map(Row, LEVELS)), "digits", tuning=Tuning(4), baseline="amsgradw", rule=rule
    )
    runs = beside(tmp_path, study(diverged=()), plan)
    [one] = series.studies(runs)
    found = judged(one)
    assert (found.base, found.fixed, found.rule) == ("amsgradw", True, rule)
    assert judged(one, "sgdm", stats.DecisionRule()).rule == stats.DecisionRule()
    assert judged(one, "sgdm").base == "sgdm"
    assert "better than amsgradw by" in render(runs)
    for text in ("{}", "[]", "no JSON", '{"rows": 3}'):
        (tmp_path / "study.json").write_text(text)
        found = judged(one)
        assert (found.base, found.fixed, found.rule) == ("adaxw", False, stats.DecisionRule())


def test_the_page_judges_as_the_command_does(tmp_path):
    """Untuned defaults: the command gives a table and no verdict, and so does the page of its runs."""
    rows = tuple(map(Row, ("adamw", "adaxw")))
    runs = [record("adaxw", s, metric=0.95 + s / 1000) for s in range(5)]
    runs += [record("adamw", s, metric=0.9 + s / 1001) for s in range(5)]
    said, pages = {}, {}
    for name, plan in {
        "untuned": Study("digits", rows, "digits", baseline="adamw"),
        "tuned": Study("digits", rows, "digits", tuning=Tuning(4), baseline="adamw"),
    }.items():
        stored = beside(tmp_path, runs, plan)
        [one] = series.studies(stored)
        found = judged(one)
        assert {r.name: r.verdict for r in summarise(plan, stored).rows if r.verdict} == found.verdicts
        said[name] = tables.headline(one, tables.summary(one, found), found)
        pages[name] = render(stored)
        assert html.escape(answer(summarise(plan, stored)).text) in pages[name], "the answer of the command"
    assert said["untuned"] == f"No verdict: {UNTUNED}."
    assert said["tuned"] == "adaxw is better than adamw."
    first = {name: text.index("Use adaxw at lr") for name, text in pages.items() if "Use adaxw" in text}
    assert list(first) == ["tuned"]
    assert first["tuned"] < pages["tuned"].index("<table"), "before the table"


def test_a_study_that_grew_after_a_look_says_so(tmp_path):
    rows = tuple(map(Row, ("adamw", "adaxw")))
    plan = Study("digits", rows, "digits", seeds=5, tuning=Tuning(4), baseline="adamw")
    runs = beside(tmp_path, [record(r.name, s) for r in rows for s in range(5)], plan)
    assert "after a look" not in render(runs)
    content = json.loads((tmp_path / "study.json").read_text())
    content["history"] = [{"changed": "seeds", "before": 3, "after": 5}]
    (tmp_path / "study.json").write_text(json.dumps(content))
    assert "Extended from 3 to 5 seeds after a look at the results." in render(runs)


def test_nothing_leads_while_the_verdict_is_open():
    runs = [record(name, s, metric=m + s / 500 * (-1) ** s) for s in range(5) for name, m in CLOSE.items()]
    [one] = series.studies(runs)
    found = judged(one)
    assert {v.outcome for v in found.verdicts.values()} == {"inconclusive"}
    assert 'class="best"' not in render(runs)
    assert tables.headline(one, tables.summary(one, found), found) == (
        "No significant difference from adaxw: adamw and sgdm (n = 5)."
    )
    far = [record("adaxw", s, metric=0.99 + s / 1e4) for s in range(5)]
    assert 'class="best">0.99' in render([r for r in runs if r.spec["optimizer"] != "adaxw"] + far)


def test_b2_T_is_shown_where_b2_is_a_rate_of_growth():
    options = {"betas": [0.9, 1e-3]}.items()
    runs = [record(name, s, options=options) for name in ("adamw", "adaxw") for s in range(3)]
    [one] = series.studies(runs)
    rows = {r.label: r.b2_steps for r in tables.summary(one, judged(one))}
    assert rows == {"adaxw": "0.46", "adamw": ""}
    assert "b2*T" in render(runs)
    assert "b2*T" not in render([r for r in runs if r.spec["optimizer"] == "adamw"])


def failed(optimizer, study="digits", purpose="final"):
    made = record(optimizer, 0, purpose, study)
    return replace(made, done=None, metrics=[], error="RuntimeError: <no kernel> (at mine.py:4)")


def test_a_failed_optimizer_has_a_line_that_says_why():
    for purpose in ("final", "tune"):
        runs = [*study(), failed("mine.py:Opt", purpose=purpose)]
        [one] = series.studies(runs)
        rows = tables.summary(one, judged(one))
        assert (rows[-1].label, rows[-1].verdict) == ("mine.py:Opt", "failed")
        text = render(runs)
        assert "RuntimeError: &lt;no kernel&gt; (at mine.py:4)" in text
        assert "error.txt" in text
        assert "mine.py:Opt failed." in text
    found = judged(series.studies([*study(), failed("sgdm")])[0], "sgdm")
    assert {v.outcome for v in found.verdicts.values()} == {"none"}, "a baseline that failed judges nothing"


def test_contents_and_failed_studies_last():
    dead = [record("adamw", s, study="a-dead", status="diverged") for s in range(3)]
    crashed = [failed("mine.py:Opt", "b-crashed")]
    text = render([*dead, *crashed, *study("c-fine"), *study("d-fine")]).partition('<div id="tip"')[0]
    heads = re.findall(r"<h2>(.*?)</h2>", text)
    assert heads == ["Studies", "c-fine", "d-fine", "a-dead", "b-crashed", "Data"]
    assert re.findall(r'<li><a href="#study-(.*?)">', text) == ["c-fine", "d-fine", "a-dead", "b-crashed"]
    for anchor in re.findall(r'href="#(study.*?)"', text):
        assert f'<section id="{anchor}">' in text
    assert "<h2>Studies</h2>" not in render(study())


def test_the_data_of_a_page_are_those_of_an_export(tmp_path):
    runs = [*study(), failed("mine.py:Opt")]
    [packed] = re.findall(r'id="records">(.*?)</script>', render(runs))
    data = gzip.decompress(base64.b64decode(packed))
    path = store.export(runs, tmp_path / "runs.jsonl")
    assert data == path.read_bytes()
    again = store.read_export(path)
    assert sorted(r.status for r in again) == sorted(r.status for r in runs)
    assert [r.error for r in again if r.error] == ["RuntimeError: <no kernel> (at mine.py:4)"]
    assert render(runs) == render(runs), "equal runs give equal pages"


def test_equal_differences_say_so_and_have_no_interval():
    """0.97 - 0.95 and 0.96 - 0.94 differ in the last bit; that is no spread to show digits of."""
    runs = [record("adaxw", i, metric=m) for i, m in enumerate((0.95, 0.94, 0.93))]
    runs += [record("adamw", i, metric=m) for i, m in enumerate((0.97, 0.96, 0.95))]
    [one] = series.studies(runs)
    row = {r.label: r for r in tables.summary(one, judged(one, "adamw"))}["adaxw"]
    assert (row.difference, row.note) == ("\N{MINUS SIGN}0.02", "3 pairs, all equal")


def test_a_method_that_diverged_is_never_called_better():
    runs = [record("adaxw", i, metric=0.95 + i / 1000) for i in range(4)] + [
        record("adaxw", 4, status="diverged")
    ]
    runs += [record("adamw", i, metric=0.9 + i / 1000) for i in range(5)]
    [one] = series.studies(runs)
    rows = {r.label: r for r in tables.summary(one, judged(one, "adamw"))}
    assert rows["adaxw"].verdict == "inconclusive"
    assert not any(row.leads for row in rows.values())
    assert "1 of 5 diverged" in rows["adaxw"].note
    assert (rows["adaxw"].n, rows["adaxw"].diverged) == (4, 1)


@pytest.mark.parametrize(
    ("width", "value", "text"),
    [
        (0.031, 0.98765, "0.988"),
        (3.1, 92.318, "92.3"),
        (31, 92.318, "92"),
        (0.0, 0.98765, "0.98765"),
        (0.01, -0.00096, "\N{MINUS SIGN}0.001"),
        (0.01, -0.00006, "0.000"),
        (0.5, 1.25e9, "1.25e+09"),
    ],
)
def test_numbers_have_the_digits_that_their_width_allows(width, value, text):
    assert numbers.Figures(width).number(value) == text


def test_variants_of_one_optimizer_are_not_averaged():
    runs = [record(seed=s, options={"b2": b2}.items()) for s in range(3) for b2 in (1e-3, 1e-4)]
    [one] = series.studies(runs)
    assert one.labels == ["adaxw, b2=0.001", "adaxw, b2=0.0001"]
    assert [len(s.finished) for s in one.series] == [3, 3]


def test_curves_are_thinned_and_keep_their_ends():
    run = record(epochs=1000)
    line = series.curve([run], "metric", "epoch")
    assert len(line.x) == series.MAX_POINTS
    assert (line.x[0], line.x[-1]) == (1, 1000)
    assert line.values[-1] == [run.metrics[-1]["metric"]]


def test_the_axis_is_the_step_when_epochs_repeat():
    run = record()
    assert series.axis_of(series.studies([run])[0]) == "epoch"
    often = RunRecord(run.spec, run.env, [{**m, "epoch": 1} for m in run.metrics], run.done, run.path)
    assert series.axis_of(series.studies([often])[0]) == "step"


def test_values_that_are_no_numbers_are_left_out():
    run = record()
    lines = [{**m, "train_loss": None if m["epoch"] % 2 else float("nan")} for m in run.metrics]
    [one] = series.studies([RunRecord(run.spec, run.env, lines, run.done, run.path)])
    names = [p.name for p in charts.figures(one)]
    assert "train-loss" not in names
    assert "metric" in names


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
    assert all(r["mean"] < 0 for r in rows_of(charts.differences(one, judged(one, "adaxw")), "verdict"))


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


# -- errors ---------------------------------------------------------------------------------------------------


def test_no_records_is_one_line(tmp_path):
    for call in (lambda: write_report([], tmp_path / "r.html"), lambda: save_static([], tmp_path)):
        with pytest.raises(LabError, match="no runs") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_unknown_baseline_names_the_known(tmp_path):
    with pytest.raises(LabError, match=r"baseline='adm': .*sgdm, adamw, amsgradw, adaxw"):
        write_report(study(), tmp_path / "r.html", baseline="adm")


def test_a_page_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write"):
        write_report(study(seeds=2), tmp_path / "file" / "r.html")


def test_unfinished_and_bare_records(tmp_path):
    """Runs that have just begun: no metrics, no end, no environment."""
    begun = record("adamw", 1, status="unfinished")
    bare = RunRecord(begun.spec, {}, [], None, begun.path)
    text = render([bare])
    assert "No final run has finished yet" in text
    assert "1 unfinished" in render([bare, record("adamw", 2)])
