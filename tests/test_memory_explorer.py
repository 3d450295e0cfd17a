"""docs/memory-explorer.md in a real browser: its numbers are the library's, by mouse and by keyboard."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import pytest

from adaxopt import memory, rule
from browser import Opened, browsers, chromium

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import site_source  # noqa: E402

RECORD = json.loads((ROOT / "records" / "memory" / "gradients.json").read_text())
STEPS = RECORD["steps"]
READY = "document.getElementById('memory-explorer').dataset.ready === 'true'"
pytestmark = browsers


@pytest.fixture(scope="module")
def browser():
    with chromium() as process:
        yield process


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The page's element and scripts, without the site around them."""
    folder = tmp_path_factory.mktemp("explorer")
    (folder / "memory-data.js").write_text(site_source.memory_data())
    scripts = re.findall(
        r'<script src="assets/([\w-]+\.js)">', (ROOT / "docs" / "memory-explorer.md").read_text()
    )
    assert scripts[0] == "memory-data.js"
    assert len(scripts) == 4
    for name in [*scripts[1:], "memory-explorer.css"]:
        (folder / name).write_text((ROOT / "docs" / "assets" / name).read_text())
    tags = "".join(f'<script src="{name}"></script>' for name in scripts)
    head = '<meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="memory-explorer.css">'
    (folder / "page.html").write_text(f'<!doctype html>{head}<div id="memory-explorer"></div>{tags}')
    return folder / "page.html"


@pytest.fixture
def page(browser, place):
    with Opened(browser, place, ready=READY) as opened:
        yield opened


def gain(c, beta, total, t):
    """The library's gain of a point of the plane."""
    if c:
        return memory.power_gain(t, c)
    if beta == 0:
        return memory.equal_gain(t, 0.0)
    b2 = beta / total
    return memory.growing_gain(t, b2) if beta > 0 else memory.fading_gain(t, 1 + b2)


def simulated(gradients, gains, wake):
    """v and m/sqrt(v) by the library's rule, with a denominator that is never 0."""
    m = v = 0.0
    out = []
    for g, k in zip(gradients, gains, strict=True):
        n = rule.StepCoefficients(0.9, 1 - 0.9, k, 0.5, 1.0, 1.0, 1e-300, 1.0, 0.0, 0.0)
        x, m, v, _, _ = rule.step(0.0, g, m, v, n, wake=wake)
        out.append((v, -x))
    return out


POINTS = [(0, 3), (0, 7.1), (0, 300), (0, 0), (0, -0.4), (0, -71), (0, -300), (0.1, 0), (1, 0), (-0.5, 0)]


@pytest.mark.parametrize(("c", "beta"), POINTS)
def test_gains_and_weights_are_the_library_s(page, c, beta):
    expected = [gain(c, beta, STEPS, t) for t in range(1, STEPS + 1)]
    found = page.evaluate("([c, b, T]) => memoryMath.gains(c, b, T)", [c, beta, STEPS])
    assert found == pytest.approx(expected, rel=1e-10)
    for t in (1, 50, STEPS):
        left, weights = 1.0, []
        for k in reversed(expected[:t]):
            weights.append(left * k)
            left *= 1 - k
        found = page.evaluate("([c, b, T, t]) => memoryMath.weights(c, b, T, t)", [c, beta, STEPS, t])
        assert found == pytest.approx(weights[::-1], rel=1e-8, abs=1e-14)


@pytest.mark.parametrize("wake", [True, False])
@pytest.mark.parametrize("series", RECORD["series"], ids=lambda s: s["id"])
def test_v_and_steps_are_the_library_s(page, series, wake):
    gradients = series["gradients"]
    for c, beta in ((0, 3), (0, -71), (0.1, 0)):
        gains = [gain(c, beta, STEPS, t) for t in range(1, STEPS + 1)]
        script = "([g, k, wake]) => memoryMath.simulate(g, k, wake)"
        found = page.evaluate(script, [gradients, gains, wake])
        expected = simulated(gradients, gains, wake)
        assert found["v"] == pytest.approx([v for v, _ in expected], rel=1e-9)
        assert found["step"] == pytest.approx([step for _, step in expected], rel=1e-9, abs=1e-12)


def status(page):
    """{"A": (gain, sqrt(v), step), "B": ...} as the page tells it in words."""
    text = page.locator("[role=status]").inner_text().replace("−", "-")
    found = re.findall(r"([AB]): gain (\S+), sqrt\(v\) (\S+), step (\S+) lr", text)
    return {name: tuple(map(float, values)) for name, *values in found}


def told(gradients, beta, t, wake=True, c=0):
    gains = [gain(c, beta, STEPS, i) for i in range(1, STEPS + 1)]
    v, step = simulated(gradients, gains, wake)[t - 1]
    return pytest.approx((gains[t - 1], math.sqrt(v), abs(step)), rel=1e-3)


def test_what_the_page_tells_is_what_the_library_computes(page):
    decay = [10 * 10 ** (-2 * i / (STEPS - 1)) for i in range(STEPS)]
    assert status(page) == {"A": told(decay, 3, STEPS), "B": told(decay, -71, STEPS)}
    for series in RECORD["series"]:
        page.get_by_role("button", name=f"recorded: {series['name']}").click()
        expected = {"A": told(series["gradients"], 3, STEPS), "B": told(series["gradients"], -71, STEPS)}
        assert status(page) == expected
    page.get_by_role("button", name="late start").click()
    page.get_by_label("guard for late-activated").uncheck()
    late = [0.0] * (STEPS * 6 // 10) + [1.0] * (STEPS * 4 // 10)
    assert status(page)["A"] == told(late, 3, STEPS, wake=False)


def test_the_table_replays_the_gradient_under_every_method(page):
    page.get_by_role("button", name="recorded: convolution weight").click()
    rows = [row.split("\t") for row in page.locator("tbody").inner_text().replace("−", "-").splitlines()]
    labels = [row[0] for row in rows]
    assert "AdaX, AdamNX, b2 = 0.0001" in labels
    assert "Adam, b2 = 0.999" in labels
    assert page.locator("[data-chart=all] path.line").count() == len(rows)
    gradients = RECORD["series"][0]["gradients"]
    for label, *numbers in rows:
        beta, c, last, root, largest = map(float, numbers)
        gains = [gain(c, max(-300, min(300, beta)), STEPS, t) for t in range(1, STEPS + 1)]
        expected = simulated(gradients, gains, True)
        assert last == pytest.approx(gains[-1], rel=1e-3), label
        assert root == pytest.approx(math.sqrt(expected[-1][0]), rel=1e-3), label
        assert largest == pytest.approx(max(abs(step) for _, step in expected), rel=1e-3), label


def test_the_keyboard_reaches_everything(page):
    page.get_by_role("button", name="spike").press("Enter")
    page.locator("[data-t]").press("Home")
    assert page.evaluate("memoryExplorer.state.t") == 1
    page.locator("[data-t]").press("End")
    spike = page.get_by_role("slider", name="spike")
    spike.press("ArrowRight")
    page.keyboard.press("ArrowRight")  # the focus stays although the chart was drawn anew
    page.keyboard.press("ArrowDown")
    assert page.evaluate("memoryExplorer.state.spike") == {"t": 122, "size": pytest.approx(50 / 10**0.1)}
    page.get_by_role("slider", name="method A").press("ArrowUp")
    page.keyboard.press("ArrowRight")
    state = page.evaluate("memoryExplorer.state.A")
    assert state["beta"] > 3
    assert state["c"] == pytest.approx(0.05)
    page.locator("[data-method=B]").select_option("AdaGrad")
    assert page.evaluate("memoryExplorer.state.B") == {"c": 0, "beta": 0}
    gradients = [1.0] * STEPS
    gradients[121] = 50 / 10**0.1
    assert status(page)["B"] == told(gradients, 0, STEPS)


def test_the_mouse_draws_and_drags(page):
    page.get_by_role("button", name="spike").click()
    handle = page.locator(".handle").bounding_box()
    page.mouse.move(handle["x"] + 9, handle["y"] + 9)
    page.mouse.down()
    page.mouse.move(handle["x"] + 109, handle["y"] + 39)
    page.mouse.up()
    spike = page.evaluate("memoryExplorer.state.spike")
    assert spike["t"] > 150
    assert 1 < spike["size"] < 50
    page.get_by_role("button", name="constant").click()
    chart = page.locator("[data-chart=gradient]").bounding_box()
    page.mouse.move(chart["x"] + 100, chart["y"] + 30)
    page.mouse.down()
    page.mouse.move(chart["x"] + 200, chart["y"] + 30)
    page.mouse.up()
    sizes = page.evaluate("memoryExplorer.state.sizes")
    changed = [i for i, size in enumerate(sizes) if size != 1]
    assert changed == list(range(changed[0], changed[-1] + 1)), "no gap between two positions of the mouse"
    assert len(changed) > 20
    assert sizes[changed[0]] == pytest.approx(sizes[changed[-1]])
    assert sizes[changed[0]] > 5
    box = page.locator("[data-dot=B] circle").bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] - 40)
    page.mouse.up()
    state = page.evaluate("memoryExplorer.state.B")
    assert state["beta"] > -71
    assert state["c"] > 0
    page.locator("[data-published]", has_text="RMSProp").click()
    assert page.evaluate("memoryExplorer.state.B.beta") == -300, (
        "of a run of 71,000 steps it lies beyond the plane"
    )


def test_noise_is_normal_and_the_same_every_time(page):
    first = page.evaluate("memoryMath.normals(20000)")
    assert first == page.evaluate("memoryMath.normals(20000)")
    mean = sum(first) / len(first)
    assert mean == pytest.approx(0, abs=0.03)
    assert sum((x - mean) ** 2 for x in first) / len(first) == pytest.approx(1, abs=0.04)
    page.get_by_role("button", name="constant").click()
    quiet = status(page)
    page.get_by_label("noise").check()
    assert status(page) == {"A": told(first[:STEPS], 3, STEPS), "B": told(first[:STEPS], -71, STEPS)}
    assert status(page) != quiet


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("theme", ["default", "slate"])
def test_it_fits_and_is_legible(browser, place, width, theme):
    with Opened(browser, place, width=width, ready=READY) as page:
        page.evaluate("(theme) => document.body.setAttribute('data-md-color-scheme', theme)", theme)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = "[...document.querySelectorAll('svg, fieldset, p, input')].map((e) => e.getBoundingClientRect().right)"
        assert max(page.evaluate(wide)) <= width
        sizes = (
            "[...document.querySelectorAll('svg text')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
        )
        assert min(page.evaluate(sizes)) >= 11


def test_the_record_is_what_the_page_says():
    convolution, norm, word = RECORD["series"]
    for series in RECORD["series"]:
        assert len(series["gradients"]) == STEPS
        assert all(map(math.isfinite, series["gradients"]))
    assert all(convolution["gradients"])
    assert all(norm["gradients"])
    assert sum(map(bool, word["gradients"])) < STEPS / 10
