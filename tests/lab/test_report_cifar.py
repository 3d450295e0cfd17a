"""The CIFAR-10 records through the report: names, the paper's values, sweeps, divergence."""

from __future__ import annotations

import re
import shutil
import statistics
from pathlib import Path

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")

from report_records import cifar_run, record

from adaxlab import store
from adaxlab.paper import doc_charts, figures
from adaxlab.paper.cifar10_charts import load, shown
from adaxlab.report import charts, embed, series, tables
from adaxlab.report.judged import judged
from adaxlab.report.page import render

RECORDS = Path(__file__).parents[2] / "records" / "cifar10"


def rows_of(chart, *fields):
    data = chart.to_dict()["datasets"].values()
    return [r for rows in data for r in rows if all(f in r for f in fields)]


def test_lines_become_runs_of_the_methods_that_they_are():
    lines = [cifar_run(seed=s, final=92.0 + s / 10) for s in range(3)]
    lines += [cifar_run("amsgradw", s, "torch:AdamW", 1e-3, 91.5 + s / 10, amsgrad=True) for s in range(3)]
    lines += [cifar_run("sgdm-5e-4", s, "torch:SGD", 0.1, 92.1, weight_decay=5e-4) for s in range(3)]
    lines += [
        cifar_run("sgdm-1e-4", s, "torch:SGD", 0.1, None if s else 91.0, weight_decay=1e-4) for s in range(3)
    ]
    [one] = series.studies(map(shown, lines))
    assert one.name == "cifar10/table2"
    assert one.labels == ["sgdm, wd=0.0005", "sgdm, wd=0.0001", "amsgradw", "adaxw"]
    by_name = {s.label: s for s in one.series}
    assert by_name["adaxw"].values == [92.0, 92.1, 92.2]
    assert [len(by_name["sgdm, wd=0.0001"].diverged), len(by_name["sgdm, wd=0.0001"].finished)] == [2, 1]
    rows = {r.label: r for r in tables.summary(one, judged(one, "adaxw"))}
    assert rows["adaxw"].paper == "92.32 ± 0.04"
    assert rows["amsgradw"].mean == pytest.approx(statistics.mean([91.5, 91.6, 91.7]))
    made = {p.name: p for p in charts.figures(one)}
    assert "time" not in made, "runs of a stack share their seconds"
    theirs = [r for r in rows_of(made["seeds"].chart, "low") if r["optimizer"] == "adaxw" and "n" not in r]
    assert [(r["mean"], r["low"], r["high"]) for r in theirs] == [(92.32, 92.28, 92.36)]
    assert "the paper's mean" in made["seeds"].caption


@pytest.mark.parametrize(
    ("key", "option", "values", "log"),
    [
        ("lr", "lr", [1e-2, 1e-3, 1e-4], True),
        ("b2", "betas", [[0.9, 1e-3], [0.9, 1e-4], [0.9, 1e-5]], True),
        ("b1", "betas", [[0.0, 1e-4], [0.5, 1e-4], [0.9, 1e-4]], False),
    ],
)
def test_a_sweep_is_drawn_over_its_setting(key, option, values, log):
    lines = [
        cifar_run(f"row {i}", s, study="lr", final=90.0 + i + s, **{option: v})
        for i, v in enumerate(values)
        for s in range(3)
    ]
    [one] = series.studies(map(shown, lines))
    picture = next(p for p in charts.figures(one) if p.name == "sweep")
    assert picture.title == f"Sensitivity to {key}"
    means = {r["x"]: r["mean"] for r in rows_of(picture.chart, "x", "mean", "n")}
    places = [v if option == "lr" else v[key == "b2"] for v in values]
    assert means == {place: 91.0 + i for i, place in enumerate(places)}
    scales = [part["scale"].get("type") for part in embed._walk(picture.chart.to_dict()) if _is_x(part)]
    assert set(scales) == ({"log"} if log else {None})
    assert "adaxw" in one.names, "the sweep's line has a switch of its own"


def test_a_far_worse_setting_does_not_take_the_frame():
    """It stands at the edge; intervals of the others are inside."""
    finals = {1e-2: 92.0, 1e-3: 91.5, 3e-4: 91.0, 1e-4: 90.5, 1e-5: 40.0}
    lines = [
        cifar_run(f"row {lr}", s, study="lr", final=f + s / 10, lr=lr)
        for lr, f in finals.items()
        for s in range(3)
    ]
    [one] = series.studies(map(shown, lines))
    picture = next(p for p in charts.figures(one) if p.name == "sweep")
    spec = picture.chart.to_dict()
    low, high = next(part["scale"]["domain"] for part in embed._walk(spec) if _is_y(part))
    assert 85 < low < 90.5
    assert 92.2 < high < 94
    marks = [layer for layer in spec["layer"] if layer["mark"].get("shape") == "triangle-down"]
    assert [r["x"] for r in spec["datasets"][marks[0]["data"]["name"]]] == [1e-5]


def test_a_setting_whose_interval_meets_the_others_is_not_far_worse():
    finals = {
        0.0: (92.3, 92.6, 92.55),
        0.5: (92.55, 92.4, 92.3),
        0.9: (92.6, 92.3, 92.3),
        0.99: (92.4, 91.8, 92.0),
    }
    lines = [
        cifar_run(f"row {b1}", s, study="beta1", final=value, betas=[b1, 1e-4])
        for b1, values in finals.items()
        for s, value in enumerate(values)
    ]
    [one] = series.studies(map(shown, lines))
    spec = next(p for p in charts.figures(one) if p.name == "sweep").chart.to_dict()
    low, _ = next(part["scale"]["domain"] for part in embed._walk(spec) if _is_y(part))
    assert low < 92.066 - 4.303 * 0.305 / 3**0.5  # the whole of the last interval is shown
    assert not [layer for layer in spec["layer"] if layer["mark"].get("shape") == "triangle-down"]


def _is_y(part):
    return isinstance(part, dict) and part.get("field") == "mean" and "scale" in part


def _is_x(part):
    return isinstance(part, dict) and part.get("field") == "x" and "scale" in part


def test_tuning_runs_are_scored_as_such():
    lines = [cifar_run(f"adaxw lr {lr}", 0, lr=lr, study="tuning", final=90.0) for lr in (1e-2, 1e-3)]
    [one] = series.studies(map(shown, lines))
    assert [p.name for p in charts.figures(one)] == ["lr"]


def test_the_committed_records_make_a_page():
    runs = load(RECORDS.parent)
    text = render(runs)
    for name in {r.spec["study"] for r in runs}:
        assert f"<h2>{name}</h2>" in text
    assert len(text) < 40_000 * len(runs)


@pytest.mark.parametrize("name", ["memory-screen", "memory-best"])
def test_rows_of_one_optimizer_have_their_names(name):
    """They were tuned, or differ in several settings: a memory has its own lr and b2."""
    runs = store.read_export(RECORDS / f"{name}.jsonl")
    [one] = series.studies(runs)
    rows = {row: [r for r in runs if r.row == row] for row in {r.row for r in runs}}
    assert set(one.labels) == set(rows)
    assert all(len(rows[each.label]) == len(each.final) + len(each.tune) for each in one.series)
    growing = [label for label in one.labels if re.fullmatch(r"growing b2T=\d+", label)]
    assert growing == sorted(growing, key=lambda label: int(label.rpartition("=")[2]))


def test_no_sweep_where_variants_differ_in_two_things():
    runs = [record(options={"a": a, "b": b}.items()) for a, b in ((1, 1), (2, 2), (3, 3))]
    assert series.swept(series.studies(runs)[0]) is None


def test_the_second_moment_is_drawn_from_its_trace():
    def traced(lr=5e-3, slow=0.5, fast=1e-3):
        few, one = {"iteration": [1, 10], "value": [fast, 1e-4]}, {"iteration": [1], "value": [slow]}
        return [cifar_run("adamw", s, "torch:AdamW", lr, study="trace", trace=one) for s in range(3)] + [
            cifar_run(seed=s, lr=lr, study="trace", trace={**few, "value": [fast * (s + 1), 1e-4]})
            for s in range(3)
        ]

    runs = traced()
    rows = rows_of(doc_charts.second_moment(runs), "mean", "x")
    assert {(r["optimizer"], r["x"]): r["mean"] for r in rows} == {
        ("adaxw", 1.0): pytest.approx(2e-3),
        ("adaxw", 10.0): pytest.approx(1e-4),
        ("adamw", 1.0): pytest.approx(0.5),
    }
    assert all(r["low"] > 0 for r in rows), "the axis is logarithmic"
    assert "n = 3 seeds" in " ".join(doc_charts.second_moment_words(runs)["subtitle"])
    assert doc_charts.second_moment([cifar_run()]) is None
    rows = rows_of(doc_charts.second_moment(traced(1e-3) + traced(5e-3)), "mean", "x")
    assert {r["optimizer"] for r in rows} == {
        f"{name}, lr={lr:g}" for name in ("adaxw", "adamw") for lr in (1e-3, 5e-3)
    }


def test_the_pictures_are_those_that_a_page_shows(tmp_path):
    """Drawn from the records, shown by a page: the same set, and the committed bytes."""
    shutil.copytree(RECORDS, tmp_path / "cifar10")
    made = figures.draw(tmp_path, tmp_path / "images")
    images = RECORDS.parents[1] / "docs" / "images"
    names = {path.name for path in made}
    assert names == {path.name for path in images.glob("cifar10-*")}
    assert [path.name for path in made if path.read_bytes() != (images / path.name).read_bytes()] == []
    text = "".join(
        (RECORDS.parents[1] / page).read_text() for page in ("docs/reproduction.md", "docs/cifar10.md")
    )
    assert names == set(re.findall(r"images/(cifar10-[^\"]*)", text))
