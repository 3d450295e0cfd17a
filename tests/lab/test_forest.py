"""The forest plot shows the judged claims: their numbers, verdicts and marks, on light and dark paper."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

pytest.importorskip("altair", reason="needs the extra `lab`")

from adaxlab.claim import VERDICTS
from adaxlab.paper import forest
from adaxlab.report import palette
from adaxlab.report.static import save_chart

ROOT = Path(__file__).parents[2]
NUMBER = r"[-+]?\d+\.\d+"
MOVED = r"translate\(([-\d.]+),([-\d.]+)\)"
"""Places that depend on the width of a text, and so on the fonts of the machine."""


@pytest.fixture(scope="module")
def lines() -> list[forest.Line]:
    return forest.lines(ROOT / "records")


@pytest.fixture(scope="module")
def rows() -> dict[str, dict]:
    read = (json.loads(path.read_text()) for path in (ROOT / "records/claims").glob("*.json"))
    return {row["id"]: row for part in read for row in part}


def test_numbers_and_verdicts_are_those_of_the_committed_claims(lines, rows):
    """The interval that a claim's entry writes is the one that is drawn, to its last digit."""
    for line in lines:
        row = rows[line.id]
        mean, low, high = map(
            float, re.search(f"({NUMBER}) \\[({NUMBER}), ({NUMBER})\\]", row["ours"]).groups()
        )
        if line.panel.endswith(" paper"):
            paper = float(row["paper"].partition(" ")[0])
            mean, low, high = mean - paper, low - paper, high - paper
        assert (line.mean, line.low, line.high) == pytest.approx((mean, low, high), abs=0.0051), line.id
        assert (line.verdict, line.n) == (row["verdict"], row["n"])


def test_no_claim_about_a_final_score_is_left_out(lines, rows):
    """By the words of the rules: accuracy (plain or top-1), IoU, test loss; three seeds or more. The memory study has a
    figure of its own."""
    final = re.compile(
        r"a - b(, top-1 after the last epoch,|, final IoU,)? is |b - a, test loss, is |supported if our plain"
    )
    expected = {
        id
        for id, row in rows.items()
        if final.match(row["rule"]) and "; " not in row["rule"] and (row["n"] or 0) >= 3
        if ".memory-" not in id
    }
    assert {line.id for line in lines} == expected
    assert len(expected) > 50


def test_panels_name_their_data_and_rows_differ(lines):
    drawn = {line.panel for line in lines}
    assert set(forest.PANELS) <= drawn
    for key in drawn:
        assert ("the paper's own data" if key.startswith("cifar10") else "stand-in") in forest._title(key)[0]
        labels = [line.label for line in lines if line.panel == key]
        assert len(set(labels)) == len(labels)


def test_shaded_is_where_the_claim_is_true(lines):
    by_id = {line.id: line for line in lines}
    assert by_id["cifar10.adaxw-over-adamw"].true == (0, math.inf)
    assert by_id["cifar10.adaxw-like-sgdm"].true == (-0.3, 0.3)
    assert by_id["imagenet.adaxw-no-loss"].true == (-0.5, math.inf)
    assert by_id["language.ptb.amsgrad-poor"].true == (0.1, math.inf)
    assert by_id["cifar10.table2.sgdm"].true == (-0.09, 0.09)
    for line in lines:
        if line.verdict == VERDICTS[True]:
            assert line.high > line.true[0]
            assert line.low < line.true[1]


def test_a_verdict_is_told_by_more_than_its_colour():
    hollow = {verdict: verdict == VERDICTS[None] for verdict in forest.MARKS}
    assert len({(look.shape, hollow[verdict]) for verdict, look in forest.MARKS.items()}) == 3
    for theme in ("light", "dark"):
        for look in forest.MARKS.values():
            low, high = sorted(palette._luminance(c) for c in (look.on(theme), palette.PAPER[theme]))
            assert (high + 0.05) / (low + 0.05) >= 3


def test_the_committed_figure_is_the_one_of_the_records(lines, tmp_path):
    made = save_chart(
        forest.chart(lines), tmp_path / "claims-forest", forest.words(lines), known=forest.MARKS
    )
    assert [path.name for path in made] == ["claims-forest.svg", "claims-forest-dark.svg"]
    page = (ROOT / "docs/reproduction.md").read_text()
    for path, theme in zip(made, ("light", "dark"), strict=True):
        drawn, committed = path.read_text(), (ROOT / "docs/images" / path.name).read_text()
        assert re.sub(MOVED, "", drawn) == re.sub(MOVED, "", committed), "python -m adaxlab.paper.figures"
        places = [[float(n) for pair in re.findall(MOVED, text) for n in pair] for text in (drawn, committed)]
        assert places[0] == pytest.approx(places[1], abs=2), "python -m adaxlab.paper.figures"
        assert f"images/{path.name}" in page
        text = path.read_text()
        assert all(look.on(theme) in text for look in forest.MARKS.values())
        assert "…" not in text, "a label is cut off"
        assert int(xml.fromstring(text).get("width")) <= 430, "must be readable at 400 pixels"
