"""What charts of curves and of rates show, cut and say: small records with one odd thing each."""

from __future__ import annotations

import colorsys
import itertools
import re

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")
pytest.importorskip("vl_convert", reason="the report needs vl-convert-python: pip install 'adaxopt[lab]'")

from report_records import cifar_run, record, study

from adaxlab.paper import figures
from adaxlab.paper.cifar10_charts import shown
from adaxlab.report import charts, curves, names, palette, series, tables
from adaxlab.report.page import render
from adaxlab.report.static import save_charts
from adaxlab.store import RunRecord, export
from adaxopt.zoo import METHODS


def run(optimizer, curves, seed=0, higher=False, **spec):
    """A finished run whose evaluations are given: {"metric": [...], "train_loss": [...]}."""
    made = record(optimizer, seed, higher=higher, metric_name="loss", epochs=len(curves["metric"]))
    lines = [
        {**line, **{key: values[i] for key, values in curves.items()}} for i, line in enumerate(made.metrics)
    ]
    done = {**made.done, "metric": curves["metric"][-1]}
    return RunRecord({**made.spec, **spec}, made.env, lines, done, made.path)


def several(optimizer, values, halves, key="metric", **rest):
    """Two runs with these means and half intervals: the 95% t interval of two values d apart is 12.706 * d/2."""
    sides = [[v + s * h / 12.706 for v, h in zip(values, halves, strict=True)] for s in (1, -1)]
    other = {} if key == "metric" else {"metric": values}
    return [run(optimizer, {**other, key: side}, seed, **rest) for seed, side in enumerate(sides)]


def picture(runs, name):
    [one] = series.studies(runs)
    return next(p for p in charts.figures(one) if p.name == name)


def domain(chart):
    layer = next(layer for layer in chart.to_dict()["layer"] if "y" in layer.get("encoding", {}))
    return layer["encoding"]["y"]["scale"]["domain"]


def layers(chart, **mark):
    """(layer, its rows) for the layers with these properties of the mark."""
    spec = chart.to_dict()
    found = [one for one in spec["layer"] if mark.items() <= one["mark"].items()]
    return [(one, spec["datasets"][one["data"]["name"]]) for one in found]


# -- frames of learning curves --------------------------------------------------------------------------------


@pytest.fixture
def bands(monkeypatch):
    """Two seeds are as many as a band asks for."""
    monkeypatch.setattr(curves, "SEEDS", 1)


@pytest.mark.parametrize("seeds", [1, 2, 5, 10, 11])
def test_few_seeds_are_lines_and_many_a_band(seeds):
    runs = [run("adaxw", {"metric": [0.5, 0.6, 0.7 + s / 100]}, s) for s in range(seeds)]
    made = picture(runs, "metric")
    thin = layers(made.chart, type="line", strokeWidth=1)
    assert len(layers(made.chart, type="area")) == (seeds > 10)
    assert len(thin) == (1 < seeds <= 10)
    assert ("one line per seed" in made.caption) == (1 < seeds <= 10)
    for _, rows in thin:
        assert len({r["run"] for r in rows}) == seeds
        assert sorted(r["mean"] for r in rows if r["x"] == 3) == pytest.approx(
            [0.7 + s / 100 for s in range(seeds)]
        )


def test_every_seed_that_is_shown_is_inside_the_frame():
    """A mean over 3 seeds with one far off: an interval would reach from -0.4 to 1.6."""
    ends = (0.9, 0.8, 0.1)
    runs = [run("adaxw", {"metric": [0.2, 0.5, end]}, s, higher=True) for s, end in enumerate(ends)]
    runs += [run("adamw", {"metric": [0.2, 0.5, 0.7]}, s, higher=True) for s in range(3)]
    low, high = domain(picture(runs, "metric").chart)
    assert low < 0.1
    assert 0.9 < high < 1.2


def test_a_seed_far_from_the_means_leaves_the_frame_and_that_is_said():
    runs = [run("adaxw", {"metric": [5.3, 5.1, 5.0 + 40 * s]}, s) for s in range(2)]
    runs += [run("adamw", {"metric": [5.2, 5.0, 4.9]}, s) for s in range(2)]
    runs += [run("sgdm", {"metric": [5.2, 5.05, 4.95]}, s) for s in range(9)]
    runs[:2] = [run("adaxw", {"metric": [5.3, 9.1 if s == 0 else 5.1, 5.0]}, s) for s in range(9)]
    made = picture(runs, "metric")
    assert domain(made.chart)[1] < 9
    assert made.caption.endswith(" Lines of single seeds of adaxw extend beyond the frame.")


def test_loss_over_the_time_that_it_took():
    runs = [record(name, seed) for name in ("adamw", "adaxw") for seed in range(3)]
    for one, made in enumerate(runs):
        for line in made.metrics:
            line["seconds"] *= 1 + one
    made = picture(runs, "loss-time")
    [(_, rows)] = layers(made.chart, type="line", strokeWidth=1)
    assert max(r["x"] for r in rows) == pytest.approx(0.3 * 20 * 6)
    means = [r for _, rows in layers(made.chart, type="line") for r in rows if "low" in r]
    last = {r["optimizer"]: max(q["x"] for q in means if q["optimizer"] == r["optimizer"]) for r in means}
    assert last == pytest.approx({"adamw": 0.3 * 20 * 2, "adaxw": 0.3 * 20 * 5}), "the mean over the seeds"


@pytest.mark.parametrize(("seconds", "form"), [(0.02, "~g"), (3000.0, "~g"), (3e5, "~s")])
def test_seconds_are_not_written_as_minutes(seconds, form):
    """Vega writes 0.02 as "20m" in the format ~s."""
    axis = curves._x_axis({seconds / 100 * i for i in range(100)}, curves.TIME).to_dict()
    assert axis["format"] == form
    assert "tickMinStep" not in axis, "a run may be shorter than a second"


@pytest.mark.usefixtures("bands")
@pytest.mark.parametrize("name", ["metric", "train-loss"])
def test_intervals_of_what_is_shown_are_inside_the_frame(name):
    key = name.replace("-", "_")
    runs = several("adaxw", [0.50, 0.55, 0.57], [0.03, 0.03, 0.04], key)
    runs += several("adamw", [0.35, 0.40, 0.42], [0.05, 0.04, 0.04], key)
    made = picture(runs, name)
    low, high = domain(made.chart)
    assert low < 0.30
    assert high > 0.61
    assert (low, high) == pytest.approx((0.30, 0.61), abs=0.02), "and little else is"
    assert "cut" not in made.caption


@pytest.mark.usefixtures("bands")
def test_a_band_far_wider_than_the_means_is_cut_and_said_to_be():
    runs = several("adaxw", [5.3, 5.1, 5.0], [3.0, 3.0, 0.01])
    runs += several("adamw", [5.2, 5.0, 4.9], [0.1, 0.1, 0.1])
    made = picture(runs, "metric")
    low, high = domain(made.chart)
    assert 4.7 < low < 4.8, "AdamW's is whole"
    assert 5.3 < high < 5.5
    assert made.caption.endswith(" The band of adaxw is cut at the edge of the frame.")


@pytest.mark.usefixtures("bands")
def test_bands_on_a_logarithmic_axis():
    """One reaches below zero, which has no place there; the other is shown whole."""
    runs = several("adaxw", [1.0, 0.1, 0.01], [0.1, 0.05, 0.02], "train_loss")
    runs += several("adamw", [1.0, 0.1, 0.02], [0.5, 0.05, 0.013], "train_loss")
    made = picture(runs, "train-loss")
    low, high = domain(made.chart)
    assert 0 < low < 0.007
    assert high > 1.5
    assert "The band of adaxw is cut" in made.caption


@pytest.mark.parametrize(
    ("values", "cut"),
    [([6.6, 5.0, 4.9, 4.8, 4.75], True), ([5.1, 5.0, 4.9, 4.8, 4.75], False), ([9.0, 5.0, 4.9], False)],
    ids=["far", "near", "too few to leave one out"],
)
def test_a_first_evaluation_far_from_the_rest_does_not_take_the_frame(values, cut):
    made = picture([run("adaxw", {"metric": values}), run("adamw", {"metric": values})], "metric")
    _, high = domain(made.chart)
    assert (high < values[0]) == cut
    assert ("The beginning lies outside the frame." in made.caption) == cut


# -- lines -----------------------------------------------------------------------------------------------------


def test_a_line_under_another_is_wider():
    values = [0.9, 0.5, 0.4, 0.2]
    runs = [run("adamw", {"metric": values}), run("adaxw", {"metric": [v + 0.001 for v in values]})]
    runs.append(run("sgdm", {"metric": [v + 0.1 for v in values]}))
    [(line, rows)] = layers(picture(runs, "metric").chart, type="line")
    assert {r["optimizer"]: r["stroke"] for r in rows} == {"sgdm": 2, "adamw": 3.5, "adaxw": 2}
    assert line["encoding"]["strokeWidth"]["scale"] is None, "widths are pixels"
    [(line, _)] = layers(picture(runs[1:], "metric").chart, type="line")
    assert "strokeWidth" not in line["encoding"]


def test_the_picture_has_the_widths_that_the_chart_asks_for(tmp_path):
    values = [0.9, 0.5, 0.4, 0.2]
    runs = [run(name, {"metric": values}) for name in ("adamw", "adaxw")]
    save_charts(runs, tmp_path, themes=["light"])
    assert 'stroke-width="3.5"' in (tmp_path / "digits-metric.svg").read_text()


@pytest.mark.parametrize(
    ("spec", "axis"),
    [
        ({"task": "voc", "task_options": {"steps": 23}}, "step"),
        ({"task": "mine.py:Task", "task_options": {"steps": 23}}, "step"),
        ({"task": "gpt"}, "step"),
        ({"task": "language"}, "epoch"),
        ({"task": "mine.py:Task"}, "epoch"),
    ],
)
def test_pieces_of_steps_are_not_called_epochs(spec, axis):
    runs = [run("adaxw", {"metric": [0.3, 0.2, 0.1]}, **spec)]
    assert series.axis_of(series.studies(runs)[0]) == axis
    [(line, _)] = layers(picture(runs, "metric").chart, type="line")
    x = line["encoding"]["x"]
    assert x["title"] == axis
    assert x["axis"]["values"] == ([23, 46, 69] if axis == "step" else [1, 2, 3]), "a tick at each evaluation"
    assert x["axis"]["format"] == (",d" if axis == "step" else "~s")


# -- rates -----------------------------------------------------------------------------------------------------


def trial(optimizer, lr, metric=None):
    return record(
        optimizer, 9, "tune", lr=lr, metric=metric, status="finished" if metric is not None else "diverged"
    )


GOOD = [
    trial(name, lr, m) for name in ("adamw", "adaxw") for lr, m in ((1e-4, 0.87), (3e-4, 0.88), (1e-3, 0.9))
]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ([], (False, False, False)),
        ([record("adaxw", 1, lr=1e-3)], (True, False, False)),
        ([record("adaxw", 1, lr=2e-3)], (False, False, False)),
        ([trial("adaxw", 1e-2, 0.1)], (False, True, False)),
        ([trial("adaxw", 1e-2)], (False, False, True)),
        ([trial("adaxw", 1e-2, 0.1), trial("adaxw", 1e-1), record("adaxw", 1, lr=1e-3)], (True, True, True)),
    ],
    ids=["none", "ring", "no ring", "triangle", "cross", "all"],
)
def test_the_caption_names_the_marks_that_there_are(more, says):
    caption = picture([*GOOD, *more], "lr").caption
    assert tuple(word in caption for word in ("a ring", "a triangle", "a cross")) == says
    assert "validation" not in caption


def test_tuning_is_scored_on_held_out_data_whatever_the_split_is_called():
    made = picture(GOOD, "lr")
    assert "scored on data kept from training and from the test" in made.caption
    [(points, _)] = layers(made.chart, type="point", size=44)
    assert points["encoding"]["y"]["title"] == "held-out accuracy"


def test_no_line_leads_out_of_the_frame_or_over_a_diverged_trial():
    more = [
        trial("adaxw", 3e-3, 0.1),
        trial("adaxw", 1e-2, 0.89),
        trial("adamw", 3e-3),
        trial("adamw", 1e-2, 0.89),
    ]
    [(line, rows)] = layers(picture([*GOOD, *more], "lr").chart, type="line")
    assert line["encoding"]["detail"]["field"] == "part"
    found = {
        name: [[r["lr"] for r in part] for _, part in itertools.groupby(mine, key=lambda r: r["part"])]
        for name, mine in itertools.groupby(rows, key=lambda r: r["optimizer"])
    }
    assert found == {name: [[1e-4, 3e-4, 1e-3], [1e-2]] for name in ("adamw", "adaxw")}


def test_no_line_of_a_sweep_leads_out_of_the_frame():
    finals = {1e-2: 92.0, 1e-3: 91.5, 3e-4: 91.0, 1e-4: 90.5, 1e-5: 40.0}
    runs = [shown(cifar_run(f"lr {lr}", study="lr", final=f, lr=lr)) for lr, f in finals.items()]
    made = picture(runs, "sweep")
    [(_, rows)] = layers(made.chart, type="line")
    assert sorted(r["x"] for r in rows) == [1e-4, 3e-4, 1e-3, 1e-2]
    assert made.caption.endswith("A triangle at the edge is a far worse setting.")
    assert "triangle" not in picture(runs[:-1], "sweep").caption


@pytest.mark.parametrize("higher", [True, False])
def test_marks_at_one_rate_are_piled_from_the_edge(higher):
    def turned(r):
        done = {**r.done, "higher_is_better": higher}
        done["metric"] = done["metric"] if higher or done["metric"] is None else 1 - done["metric"]
        return RunRecord(r.spec, r.env, r.metrics, done, r.path)

    more = [trial(name, 1e-2, 0.1) for name in ("adamw", "adaxw")] + [
        trial("sgdm", 1e-2),
        trial("sgdm", 1e-1),
    ]
    made = picture([turned(r) for r in [*GOOD, *more]], "lr").chart
    shape = "triangle-down" if higher else "triangle-up"
    piles = {
        (r["optimizer"], r["lr"]): (layer["mark"]["yOffset"], layer["mark"]["shape"] == shape)
        for layer, rows in layers(made, type="point")
        if "yOffset" in layer["mark"]
        for r in rows
    }
    up = -1 if higher else 1
    assert piles == {
        ("adamw", 1e-2): (0, True),
        ("adaxw", 1e-2): (up * 11, True),
        ("sgdm", 1e-2): (up * 22, False),
        ("sgdm", 1e-1): (0, False),
    }


# -- names and looks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "options", "title"),
    [
        ("torch:SGD", {"momentum": 0.9}, "SGDM"),
        ("torch:SGD", {}, "SGD"),
        ("torch:AdamW", {}, "AdamW"),
        ("torch:AdamW@amsgrad", {}, "AMSGrad(W)"),
        ("torch:NAdam", {}, "NAdam"),
        ("adaxw@b2=1e-4", {}, "AdaX-W, b2 = 1e-4"),
        ("adaxw@b2T=50, lr=0.1", {}, "AdaX-W, b2·T = 50, lr = 0.1"),
        ("adaxlab.muon:MuonAdamW", {}, "MuonAdamW"),
    ],
)
def test_titles(label, options, title):
    assert names.title(label, options) == title


def test_every_method_has_a_title_of_its_own():
    assert set(names.TITLES) == set(METHODS)
    assert len(set(names.titles(METHODS).values())) == len(METHODS)


def test_legends_and_axes_of_pictures_have_titles(tmp_path):
    """Two names that would read the same keep their own; what a label holds is text, not an expression."""
    odd = 'x.py:"]+alert(1)+["'
    labels = ("torch:AdamW@amsgrad", "adamw", "torch:AdamW", odd)
    runs = [record(label, seed) for label in labels for seed in range(2)]
    save_charts(runs, tmp_path, themes=["light"])
    for kind in ("metric", "seeds"):
        text = (tmp_path / f"digits-{kind}.svg").read_text().replace("&quot;", '"')
        for words in ("AMSGrad(W)", "adamw", "torch:AdamW", '"]+alert(1)+["'):
            assert f">{words}<" in text, (kind, words)
        assert ">torch:AdamW@amsgrad<" not in text


def test_the_picture_of_the_second_moment_has_titles(tmp_path):
    run = cifar_run(study="trace", trace={"iteration": [1, 10], "value": [1e-3, 1e-4]})
    export([run], tmp_path / "cifar10" / "trace.jsonl")
    made = figures._trace("trace", tmp_path, tmp_path)
    assert [">AdaX-W<" in path.read_text() for path in made] == [True, True]


def test_a_page_has_one_spelling_of_a_name_and_an_image_has_titles(tmp_path):
    runs = [record(name, seed) for name in ("torch:AdamW", "adaxw") for seed in range(3)]
    assert picture(runs, "difference").title == "Compared with adaxw on the same seeds"
    text = render(runs)
    assert "AdaX-W" not in text
    assert not re.search(r"(?<!torch:)AdamW", text.partition("<script>")[0].partition("<main")[2])
    save_charts(runs, tmp_path, themes=["light"])
    assert "Compared with AdaX-W on" in (tmp_path / "digits-difference.svg").read_text()


@pytest.mark.parametrize(
    ("labels", "like"),
    [
        (["torch:SGD", "torch:AdamW@amsgrad"], {"torch:SGD": "sgdm", "torch:AdamW@amsgrad": "amsgradw"}),
        (["torch:AdamW", "adamw"], {"adamw": "adamw"}),
        (["adaxw@b2=1e-4", "adaxw"], {"adaxw": "adaxw"}),
    ],
)
def test_one_look_for_a_method_whoever_made_it_and_another_for_its_second_name(labels, like):
    made = palette.looks(labels)
    assert {label: made[label] for label in like} == {
        label: palette.LOOKS[name] for label, name in like.items()
    }
    one, two = made.values()
    assert one.light != two.light
    assert one.dark != two.dark
    if len(like) < 2:
        hues = [
            colorsys.rgb_to_hls(*(int(v.light[i : i + 2], 16) / 255 for i in (1, 3, 5)))[0]
            for v in (one, two)
        ]
        assert 0.1 < abs(hues[0] - hues[1]) < 0.9, "not a shade of the same"
        assert one.dash != two.dash, "where one lies on the other, both are seen"


# -- what was run ----------------------------------------------------------------------------------------------


def shorter(runs, epochs):
    return [
        RunRecord({**r.spec, "epochs": epochs}, r.env, r.metrics, r.done, r.path)
        if r.spec["purpose"] == "tune"
        else r
        for r in runs
    ]


@pytest.mark.parametrize(
    ("runs", "epochs"),
    [
        (study(seeds=2), "20"),
        (shorter(study(seeds=2), 6), "20; tuning runs 6"),
        ([r for r in shorter(study(), 6) if r.spec["purpose"] == "tune"], "6"),
    ],
    ids=["the same", "shorter", "tuning alone"],
)
def test_shorter_tuning_runs_are_told(runs, epochs):
    [one] = series.studies(runs)
    assert dict(tables.setup(one))["epochs"] == epochs
    assert "Run it again" not in render(runs), "without study.json the command is not known"
