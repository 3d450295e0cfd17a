"""The page in a real browser: drawn, silent, offline; hover, switches, themes, a phone, hostile names."""

from __future__ import annotations

import csv
import re
import statistics
from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")
pytest.importorskip("vl_convert", reason="the report needs vl-convert-python: pip install 'adaxopt[lab]'")

from PIL import Image
from report_records import LEVELS, record, study

from adaxlab import store
from adaxlab.report import embed, palette, write_report
from adaxopt.zoo import METHODS
from browser import Opened as Tab
from browser import browsers, chromium

EVIL = '</script><img src=x onerror="alert(1)">&\'"'


@pytest.fixture(scope="module")
def browser():
    with chromium() as process:
        yield process


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Two studies on one page."""
    out = tmp_path_factory.mktemp("report") / "report.html"
    records = study() + study("second", ("adamw", "adaxw"), seeds=3, diverged=())
    assert write_report(records, out, title="A comparison") == out
    return out


READY = "document.documentElement.dataset.ready === 'true'"
Opened = partial(Tab, ready=READY)


def redrawn(page):
    """Wait until every chart has drawn what it was told."""
    page.evaluate(
        "() => Promise.all([...adaxReport.views.values()].map((view) => view.runAsync())).then(() => 0)"
    )


def strokes(page, name):
    """How many lines of that optimizer each chart with lines shows."""
    variable = embed.variable(palette.LOOKS[name])
    script = """(variable) => [...document.querySelectorAll('.chart')].map((chart) =>
        [...chart.querySelectorAll('.mark-line path')].filter((p) =>
            (p.getAttribute('stroke') || '').includes(variable) && p.getAttribute('d')).length)"""
    return page.evaluate(script, variable)


def marks(page, name):
    """How many marks of that optimizer the whole page shows, of any kind."""
    variable = embed.variable(palette.LOOKS[name])
    script = """(variable) => [...document.querySelectorAll('.chart svg [aria-roledescription], .chart svg path')]
        .filter((p) => ['stroke', 'fill'].some((k) => (p.getAttribute(k) || '').includes(variable))).length"""
    return page.evaluate(script, variable)


@browsers
def test_every_chart_is_drawn(browser, report):
    with Opened(browser, report) as page:
        charts_drawn = page.evaluate(
            """[...document.querySelectorAll('.chart')].map((c) => c.querySelectorAll(
                '.mark-line path[d], .mark-symbol path[d], .mark-rect path[d], .mark-rule line').length)"""
        )
        assert len(charts_drawn) == 7 + 7
        assert min(charts_drawn) >= 2, charts_drawn
        assert page.locator(".chart.failed").count() == 0
        assert page.locator("h1").inner_text() == "A comparison"
        assert page.locator("section h2").all_inner_texts() == ["Studies", "digits", "second", "Data"]
        assert strokes(page, "adaxw")[:3] == 3 * [1 + 5], "the mean and every seed"
        assert strokes(page, "adamw")[:3] == 3 * [1 + 4 + 1], "the mean, the seeds, and the run that diverged"


@browsers
def test_the_table_says_what_the_records_say(browser, report):
    with Opened(browser, report) as page:
        table = page.locator("#study-digits table.summary")
        rows = [row.split("\t") for row in table.inner_text().splitlines() if "\t" in row]
        text = table.inner_text()
        values = [record("adaxw", s).done["metric"] for s in range(5)]
        assert f"{statistics.mean(values):.4f}" in text
        assert "1 diverged" in text
        assert rows
        how = page.locator("#study-digits details").first
        how.locator("summary").click()
        said = how.inner_text()
        for words in (
            "cosine",
            "0, 1, 2, 3, 4 (5)",
            "4 per optimizer (equal budgets)",
            "2.13.0",
            "0123456789ab",
        ):
            assert words in said, words


def hover(page, x, y):
    """Move the pointer until the tooltip is shown: on a busy machine the chart may miss the first event."""
    for i in range(60):
        page.mouse.move(x + i % 2, y)
        page.wait_for_timeout(100)
        if page.locator("#tip.on").count():
            return
    raise AssertionError("no tooltip")


@browsers
def test_hover_shows_a_tooltip_with_every_method(browser, report):
    with Opened(browser, report) as page:
        chart = page.locator("#study-digits .chart").first
        chart.scroll_into_view_if_needed()
        # the event of that scrolling, which hides the tooltip, is sent before the callbacks of the next frame
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        box = chart.bounding_box()
        assert page.locator("#tip.on").count() == 0
        hover(page, box["x"] + 0.6 * box["width"], box["y"] + 0.4 * box["height"])
        said = page.locator("#tip").inner_text()
        assert said.startswith("epoch ")
        epoch = int(said.split()[1])
        for name in LEVELS:
            seeds = [s for s in range(5) if (name, s) != ("adamw", 3)]
            mean = statistics.mean(record(name, s).metrics[epoch - 1]["metric"] for s in seeds)
            shown = re.search(rf"{name}\s+([\d.]+) \[", said)
            assert shown, said
            assert float(shown[1]) == pytest.approx(mean, abs=2e-3)
        inside = page.locator("#tip").bounding_box()
        assert inside["x"] >= 0
        assert inside["x"] + inside["width"] <= 1280
        page.mouse.move(2, 2)
        page.wait_for_selector("#tip:not(.on)", state="attached")


@browsers
def test_a_switch_hides_its_method_everywhere(browser, report):
    with Opened(browser, report) as page:
        before, other = marks(page, "adaxw"), strokes(page, "adamw")
        assert before > 40
        lines = 3 * (1 + 5) + 1 + 3 * (1 + 3) + 1
        assert sum(strokes(page, "adaxw")) == lines, "three curves with their seeds and tuning in each study"
        chip = page.get_by_role("button", name="adaxw", exact=True)
        chip.click()
        redrawn(page)
        assert chip.get_attribute("aria-pressed") == "false"
        assert marks(page, "adaxw") == 0
        assert strokes(page, "adamw") == other
        assert page.locator("tr.off").count() == 2
        chart = page.locator("#study-digits .chart").first
        chart.scroll_into_view_if_needed()
        chart.hover(position={"x": 300, "y": 100})
        page.wait_for_selector("#tip.on")
        assert "adaxw" not in page.locator("#tip").inner_text()
        chip.click()
        redrawn(page)
        assert sum(strokes(page, "adaxw")) == lines
        page.get_by_role("button", name="sgdm", exact=True).click(modifiers=["Shift"])
        redrawn(page)
        assert sum(strokes(page, "adamw")) == 0
        assert sum(strokes(page, "sgdm")) == 3 * (1 + 5) + 1
        page.get_by_role("button", name="Show all").click()
        redrawn(page)
        assert sum(strokes(page, "adaxw")) == lines


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


@browsers
@pytest.mark.parametrize("system", ["light", "dark"])
def test_light_and_dark(browser, report, system):
    line = """(v) => getComputedStyle([...document.querySelectorAll('.mark-line path')].find((p) =>
        p.getAttribute('stroke').includes(v))).stroke"""
    paper = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    look = palette.LOOKS["adaxw"]
    with Opened(browser, report, color_scheme=system) as page:
        for name in (system, "dark" if system == "light" else "light"):
            assert page.evaluate(line, embed.variable(look)) == rgb(look.on(name))
            assert page.evaluate(paper) == rgb(palette.PAPER[name])
            page.locator("#theme").click()
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.emulate_media(media="print")
        assert page.evaluate(paper) == rgb(palette.PAPER["light"])
        assert page.evaluate(line, embed.variable(look)) == rgb(look.light)
        assert not page.locator("#theme").is_visible()


@browsers
def test_a_phone(browser, report):
    with Opened(browser, report, width=360, height=740, has_touch=True, is_mobile=True) as page:
        for n in range(page.locator("summary").count()):
            page.locator("summary").nth(n).evaluate("e => e.parentElement.open = true")
        assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
        wide = page.evaluate(
            """[...document.querySelectorAll('main section, .card, .chart, .chart svg, table.cards tr, pre')]
            .filter((e) => e.getBoundingClientRect().right > 361).map((e) => e.outerHTML.slice(0, 80))"""
        )
        assert wide == []
        small = page.evaluate(
            """Math.min(...[...document.querySelectorAll('.chart svg text')].map((t) =>
            parseFloat(t.getAttribute('font-size') || getComputedStyle(t).fontSize)))"""
        )
        assert small >= 11
        chart = page.locator("#study-digits .chart").first
        chart.scroll_into_view_if_needed()
        chart.tap(position={"x": 200, "y": 100})
        page.wait_for_selector("#tip.on")


@browsers
def test_long_names_and_variants_fit_a_phone(browser, tmp_path):
    runs = [record("mine.py:" + "VeryLong" * 6, s) for s in range(3)]
    runs += [record(seed=s, options={"betas": [0.9, b2]}.items()) for s in range(3) for b2 in (1e-3, 1e-4)]
    out = tmp_path / "long.html"
    write_report(runs, out)
    with Opened(browser, out, width=360, height=740) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        chips = page.locator(".chip").all_inner_texts()
        assert chips[:2] == ["adaxw, b2=0.001", "adaxw, b2=0.0001"]


@browsers
@pytest.mark.parametrize("kind", ["svg", "png"])
def test_a_chart_is_saved_as_shown(browser, report, tmp_path, kind):
    with Opened(browser, report, accept_downloads=True) as page:
        page.get_by_role("button", name="sgdm", exact=True).click()
        with page.expect_download() as started:
            page.locator(f"#figure-1 [data-save={kind}]").evaluate("b => b.click()")
        path = tmp_path / started.value.suggested_filename
        started.value.save_as(path)
        assert path.name == f"accuracy-during-training.{kind}"
        if kind == "png":
            with Image.open(path) as image:
                assert image.size[0] > 1000
        else:
            text = path.read_text()
            assert "var(" not in text
            assert ">adaxw<" in text
            assert palette.LOOKS["adaxw"].light in text
            assert f'stroke="{palette.LOOKS["sgdm"].light}" stroke-width="2"' not in text


@browsers
def test_the_data_are_saved_from_the_page_alone(browser, tmp_path):
    odd = 'mine,"quoted"\nOpt'
    runs = [*study("digits", ("adamw", odd), seeds=2), *study("second", ("adaxw",), seeds=2, diverged=())]
    lost = record("sgdm", 0)
    runs.append(replace(lost, done=None, metrics=[], error="RuntimeError: no kernel"))
    out = tmp_path / "page.html"
    write_report(runs, out, title="Two studies")
    saved = {}
    with Opened(browser, out, accept_downloads=True) as page:
        for kind in ("runs", "curves", "json"):
            with page.expect_download() as started:
                page.locator(f"[data-download={kind}]").click()
            saved[kind] = tmp_path / started.value.suggested_filename
            started.value.save_as(saved[kind])
    assert [path.name for path in saved.values()] == [
        "two-studies-runs.csv",
        "two-studies-curves.csv",
        "two-studies.jsonl",
    ]
    assert saved["json"].read_bytes() == store.export(runs, tmp_path / "own.jsonl").read_bytes()
    with saved["runs"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(runs)
    assert {r["optimizer"] for r in rows} == {"adamw", odd, "adaxw", "sgdm"}
    assert [r["error"] for r in rows if r["status"] == "failed"] == ["RuntimeError: no kernel"]
    finished = {r.name: r.done["metric"] for r in runs if r.status == "finished"}
    assert {r["run"]: float(r["metric"]) for r in rows if r["metric"]} == finished
    with saved["curves"].open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == sum(len(r.metrics) for r in runs)
    first = next(r for r in runs if r.name == lines[0]["run"])
    assert float(lines[0]["train_loss"]) == first.metrics[0]["train_loss"]


@browsers
def test_hostile_names_are_text(browser, tmp_path):
    runs = [record(EVIL, s, study=EVIL, metric_name=EVIL) for s in range(3)]
    runs += [record("adamw", s, study=EVIL, metric_name=EVIL) for s in range(3)]
    runs += [record(EVIL, 9, "tune", EVIL, lr, metric_name=EVIL) for lr in (0.01, 0.1)]
    for run in runs:
        run.spec["task"] = run.env["commit"] = EVIL
    out = tmp_path / "evil.html"
    write_report(runs, out, title=EVIL)
    with Opened(browser, out) as page:
        assert page.locator("img").count() == 0
        assert page.locator("h1").inner_text() == EVIL
        chart = page.locator(".chart").first
        chart.scroll_into_view_if_needed()
        chart.hover(position={"x": 300, "y": 100})
        page.wait_for_selector("#tip.on")
        assert EVIL in page.locator("#tip").inner_text()
        page.locator(".chip").first.click()
        redrawn(page)
        assert page.locator(".chip").first.get_attribute("aria-pressed") == "false"


@browsers
def test_a_large_study_stays_small(browser, tmp_path):
    """Thirteen methods, 5 seeds, 500 epochs: at most 4 MB with all data, and all of it is drawn."""
    runs = [record(name, s, epochs=500, status="finished") for name in METHODS for s in range(5)]
    out = tmp_path / "large.html"
    write_report(runs, out)
    assert out.stat().st_size < 4e6
    with Opened(browser, out) as page:
        assert page.locator(".chip").count() == len(METHODS)
        assert page.locator(".chart.failed").count() == 0
