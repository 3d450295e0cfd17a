"""The CIFAR-10 records through the report: names, the paper's values, sweeps, divergence."""

from __future__ import annotations

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")

from report_records import cifar_line, own_figure, record

from adaxlab.cifar.book import STUDIES
from adaxlab.cifar.sections import PICTURES, WORDS
from adaxlab.errors import LabError
from adaxlab.report import charts, command, embed, figures, series, tables, trace
from adaxlab.report.cifar import load, read
from adaxlab.report.page import render

RECORDS = Path(__file__).parents[2] / "records" / "cifar10"


def written(folder, lines):
    for name in {line["study"] for line in lines}:
        text = "".join(json.dumps(line) + "\n" for line in lines if line["study"] == name)
        (folder / f"{name}.jsonl").write_text(text)
    return load(folder)


def rows_of(chart, *fields):
    data = chart.to_dict()["datasets"].values()
    return [r for rows in data for r in rows if all(f in r for f in fields)]


def test_lines_become_runs_of_the_methods_that_they_are(tmp_path):
    lines = [cifar_line(seed=s, final=92.0 + s / 10) for s in range(3)]
    lines += [cifar_line("amsgradw", s, "torch:AdamW", 1e-3, 91.5 + s / 10, amsgrad=True) for s in range(3)]
    lines += [cifar_line("sgdm-5e-4", s, "torch:SGD", 0.1, 92.1, weight_decay=5e-4) for s in range(3)]
    lines += [
        cifar_line("sgdm-1e-4", s, "torch:SGD", 0.1, None if s else 91.0, weight_decay=1e-4) for s in range(3)
    ]
    [one] = series.studies(written(tmp_path, lines))
    assert one.name == "cifar10-table2"
    assert one.labels == ["sgdm, wd=0.0005", "sgdm, wd=0.0001", "amsgradw", "adaxw"]
    by_name = {s.label: s for s in one.series}
    assert by_name["adaxw"].values == [92.0, 92.1, 92.2]
    assert [len(by_name["sgdm, wd=0.0001"].diverged), len(by_name["sgdm, wd=0.0001"].finished)] == [2, 1]
    rows = {r.label: r for r in tables.summary(one, "adaxw")}
    assert rows["adaxw"].paper == "92.32 ± 0.04"
    assert rows["amsgradw"].mean == pytest.approx(statistics.mean([91.5, 91.6, 91.7]))
    assert command.commands(one) == ["adax reproduce cifar10/table2"]
    made = {p.name: p for p in charts.pictures(one)}
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
def test_a_sweep_is_drawn_over_its_setting(tmp_path, key, option, values, log):
    lines = [
        cifar_line(f"row {i}", s, study="lr", final=90.0 + i + s, **{option: v})
        for i, v in enumerate(values)
        for s in range(3)
    ]
    [one] = series.studies(written(tmp_path, lines))
    picture = next(p for p in charts.pictures(one) if p.name == "sweep")
    assert picture.title == f"Sensitivity to {key}"
    means = {r["x"]: r["mean"] for r in rows_of(picture.chart, "x", "mean", "n")}
    places = [v if option == "lr" else v[key == "b2"] for v in values]
    assert means == {place: 91.0 + i for i, place in enumerate(places)}
    scales = [part["scale"].get("type") for part in embed._walk(picture.chart.to_dict()) if _is_x(part)]
    assert set(scales) == ({"log"} if log else {None})
    assert "adaxw" in one.names, "the sweep's line has a switch of its own"


def test_a_far_worse_setting_does_not_take_the_frame(tmp_path):
    """It stands at the edge; intervals of the others are inside."""
    finals = {1e-2: 92.0, 1e-3: 91.5, 3e-4: 91.0, 1e-4: 90.5, 1e-5: 40.0}
    lines = [
        cifar_line(f"row {lr}", s, study="lr", final=f + s / 10, lr=lr)
        for lr, f in finals.items()
        for s in range(3)
    ]
    [one] = series.studies(written(tmp_path, lines))
    picture = next(p for p in charts.pictures(one) if p.name == "sweep")
    spec = picture.chart.to_dict()
    low, high = next(part["scale"]["domain"] for part in embed._walk(spec) if _is_y(part))
    assert 85 < low < 90.5
    assert 92.2 < high < 94
    marks = [layer for layer in spec["layer"] if layer["mark"].get("shape") == "triangle-down"]
    assert [r["x"] for r in spec["datasets"][marks[0]["data"]["name"]]] == [1e-5]


def test_a_setting_whose_interval_meets_the_others_is_not_far_worse(tmp_path):
    finals = {
        0.0: (92.3, 92.6, 92.55),
        0.5: (92.55, 92.4, 92.3),
        0.9: (92.6, 92.3, 92.3),
        0.99: (92.4, 91.8, 92.0),
    }
    lines = [
        cifar_line(f"row {b1}", s, study="beta1", final=value, betas=[b1, 1e-4])
        for b1, values in finals.items()
        for s, value in enumerate(values)
    ]
    [one] = series.studies(written(tmp_path, lines))
    spec = next(p for p in charts.pictures(one) if p.name == "sweep").chart.to_dict()
    low, _ = next(part["scale"]["domain"] for part in embed._walk(spec) if _is_y(part))
    assert low < 92.066 - 4.303 * 0.305 / 3**0.5  # the whole of the last interval is shown
    assert not [layer for layer in spec["layer"] if layer["mark"].get("shape") == "triangle-down"]


def _is_y(part):
    return isinstance(part, dict) and part.get("field") == "mean" and "scale" in part


def _is_x(part):
    return isinstance(part, dict) and part.get("field") == "x" and "scale" in part


def test_tuning_runs_are_scored_as_such(tmp_path):
    lines = [cifar_line(f"adaxw lr {lr}", 0, lr=lr, study="tuning", final=90.0) for lr in (1e-2, 1e-3)]
    [one] = series.studies(written(tmp_path, lines))
    assert [p.name for p in charts.pictures(one)] == ["lr"]


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "table2.jsonl"
    path.write_text('{"study": "table2"}\n')
    with pytest.raises(LabError, match=r"table2.jsonl: is not a file of CIFAR-10 runs"):
        read(path)


@pytest.mark.skipif(not (RECORDS / "table2.jsonl").is_file(), reason="no CIFAR-10 records yet")
def test_the_committed_records_make_a_page():
    runs = load(RECORDS)
    text = render(runs, figures=[("Mine", "", own_figure())])
    for name in {r.spec["study"] for r in runs}:
        assert f"<h2>{name}</h2>" in text
    assert len(text) < 8e6


def test_no_sweep_where_variants_differ_in_two_things():
    runs = [record(options={"a": a, "b": b}.items()) for a, b in ((1, 1), (2, 2), (3, 3))]
    assert series.swept(series.studies(runs)[0]) is None


def test_the_second_moment_is_drawn_from_its_trace():
    lines = [
        cifar_line(seed=s, study="trace") | {"trace": {"iteration": [1, 10], "value": [1e-3 * (s + 1), 1e-4]}}
        for s in range(3)
    ]
    lines += [
        cifar_line("adamw", s, "torch:AdamW") | {"trace": {"iteration": [1], "value": [0.5]}}
        for s in range(3)
    ]
    rows = rows_of(trace.second_moment(lines), "mean", "x")
    assert {(r["optimizer"], r["x"]): r["mean"] for r in rows} == {
        ("adaxw", 1.0): pytest.approx(2e-3),
        ("adaxw", 10.0): pytest.approx(1e-4),
        ("adamw", 1.0): pytest.approx(0.5),
    }
    assert all(r["low"] > 0 for r in rows), "the axis is logarithmic"
    assert "n = 3 seeds" in " ".join(trace.words(lines)["subtitle"])
    assert trace.second_moment([cifar_line()]) is None
    rates = [
        line | {"options": {"lr": lr}, "trace": {"iteration": [1], "value": [lr]}}
        for line in lines
        for lr in (1e-3, 5e-3)
    ]
    rows = rows_of(trace.second_moment(rates), "mean", "x")
    assert {r["optimizer"]: r["mean"] for r in rows} == {
        f"{name}, lr={lr:g}": pytest.approx(lr) for name in ("adaxw", "adamw") for lr in (1e-3, 5e-3)
    }


def test_the_pictures_are_those_that_a_page_shows(tmp_path):
    """Drawn from the records, shown by docs/cifar10.md or README.md: the same set, and the committed bytes."""
    shutil.copytree(RECORDS, tmp_path / "cifar10")
    made = figures.draw(tmp_path, tmp_path / "images")
    images = RECORDS.parents[1] / "docs" / "images"
    names = {path.name for path in made}
    assert names == {path.name for path in images.glob("cifar10-*")}
    assert [path.name for path in made if path.read_bytes() != (images / path.name).read_bytes()] == []
    text = "".join((RECORDS.parents[1] / page).read_text() for page in ("README.md", "docs/cifar10.md"))
    assert names == set(re.findall(r"images/(cifar10-[^\"]*)", text))
    assert set(PICTURES) == set(STUDIES)
    for kinds in PICTURES.values():
        assert set(kinds) <= set(WORDS)
