"""The report's numbers against independent ones, its errors."""

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

from report_records import LEVELS, record, study

from adaxlab import stats, store
from adaxlab.answer import answer
from adaxlab.errors import LabError
from adaxlab.report import (
    charts,
    numbers,
    series,
    static,
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


@pytest.mark.parametrize(("key", "left_out"), [("task_source", 6), ("optimizer_source", 3)])
def test_runs_of_an_edited_file_are_not_mixed_with_those_of_the_new_one(key, left_out):
    """A named study that is run again after an edit holds runs of both versions."""

    def version(source, day, metric):
        runs = [record(name, seed, metric=metric) for name in ("adamw", "adaxw") for seed in range(3)]
        for run in runs:
            run.env["time"] = f"2026-01-{day}T00:00:00+00:00"
            if key == "task_source" or run.spec["optimizer"] == "adaxw":
                run.spec[key] = source
        return [run for run in runs if key in run.spec or day == "01"]

    runs = [*version("new", "02", 0.3), *version("old", "01", 0.9)]
    [one] = series.studies(runs)
    values = {s.label: s.values for s in one.series}
    assert values["adaxw"] == [0.3] * 3
    assert values["adamw"] == [0.3 if key == "task_source" else 0.9] * 3
    assert one.replaced == left_out
    assert f"{left_out} runs of an earlier version of the task&#x27;s or an optimizer&#x27;s file" in render(
        runs
    )
    assert "earlier version" not in render(version("new", "02", 0.3))


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


# -- errors ---------------------------------------------------------------------------------------------------


def test_no_records_is_one_line(tmp_path):
    for call in (lambda: write_report([], tmp_path / "r.html"), lambda: static.save_charts([], tmp_path)):
        with pytest.raises(LabError, match="no runs") as caught:
            call()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


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


def test_further_metrics_of_the_task_have_a_column():
    runs = [record(name, seed) for name in ("adamw", "adaxw") for seed in range(3)]
    for run, rmse in zip(runs, (0.5, 0.6, 0.7, 0.1, 0.2, 0.3), strict=True):
        run.done["metrics"] = {"accuracy": run.done["metric"], "rmse": rmse, "auc": None}
    page = render(runs)
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", page.partition("summary cards")[2].partition("</table>")[0])
    assert heads.count("rmse") == 1
    assert "accuracy" not in heads
    assert "auc" not in heads
    assert ">0.6<" in page
    assert ">0.2<" in page
