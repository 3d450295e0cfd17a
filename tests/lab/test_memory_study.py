"""The page of the memory study from made runs: ranges, the three that the rule chooses, the table."""

from pathlib import Path

import made_records
import pytest

from adaxlab import store
from adaxlab.paper import figures, memory
from adaxlab.paper.tables import memory_study as page
from adaxlab.summary import summarise

SCREEN = memory.GPT_SCREEN
RATES = memory.GPT_RATES


def results(name):
    """Losses over the rates: fading 0.95's range is three rates, asymmetric 0.3's five, and one row always diverges."""
    if name == "equal":
        return [None] * 6
    wide = {"asymmetric 0.3": 5, "log-time 8": 4, "polynomial 0.8": 4}.get(name, 3)
    offset = {"log-time 8": -0.001, "growing b2T=10": -0.002}.get(name, 0.0)
    return [1.30 + offset] * wide + [1.5] * (5 - wide) + [None]


@pytest.fixture(scope="module")
def runs():
    return [
        made_records.run(
            SCREEN.name, row.name, value, seed=20_000, lr=lr, purpose="tune", higher=False,
        )
        for row in SCREEN.rows
        for lr, value in zip(RATES, results(row.name), strict=True)
    ]  # fmt: skip


def test_the_three_with_the_widest_range_are_chosen(runs):
    found = summarise(SCREEN, runs)
    assert len(found.rows) == 16
    assert page.chosen(found, 0.02) == ["asymmetric 0.3", "log-time 8", "polynomial 0.8"]


def test_of_equal_ranges_the_better_result_is_chosen(runs):
    narrow = [r for r in runs if r.row not in ("asymmetric 0.3", "polynomial 0.8")]
    assert page.chosen(summarise(SCREEN, narrow), 0.02)[:2] == ["log-time 8", "growing b2T=10"]


def test_the_page_has_a_row_for_every_memory(runs, tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    store.export(runs, folder / "gpt-memory-screen.jsonl")
    text = page.section(tmp_path)
    assert "| fading 0.95 | 0.0006 | 1.3000 | 3 | kept |" in text
    assert "| asymmetric 0.3 | 0.0006 | 1.3000 | 5 | chosen |" in text
    assert "| equal |  | diverged | 0 |  |" in text
    assert text.count("| kept |") == 3
    assert text.count("| chosen |") == 3
    assert "*Not run yet (`adax reproduce cifar10/memory-screen`).*" in text
    drawn = figures.draw(folder, tmp_path / "images")
    assert {"gpt-memory-screen-lr.svg", "gpt-memory-screen-lr-dark.svg"} <= {Path(f).name for f in drawn}


def test_the_rule_and_the_page_have_the_same_numbers():
    text = (Path(__file__).parents[2] / "docs" / "memory-study.md").read_text()
    assert f"{memory.TOLERANCE['gpt-memory-screen']:g} nats per byte" in text
    assert f"{100 * memory.TOLERANCE['cifar10/memory-screen']:g} points" in text
    assert set(memory.TOLERANCE) == {screen.study.name for screen in page.SCREENS}
    for screen in page.SCREENS:
        assert set(memory.KEPT) < {row.name for row in screen.study.rows}
