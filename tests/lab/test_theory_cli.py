"""`run` writes what it says, figures are drawn from the committed records, and wrong names are told the right ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adaxopt.lab.errors import LabError
from adaxopt.lab.theory import cli, figures

ROOT = Path(__file__).parents[2]
NAMES = {
    "reddi": ["reddi"],
    "synthetic": ["figure-3a"],
    "theory": ["memory", "gain", "lemma-4-1", "regret-bound", "rate", "landscape"],
}


def test_run_writes_record_claims_figures_and_page(tmp_path):
    record = cli.run("reddi", tmp_path, quick=True, steps=2000, seeds=2)
    assert json.loads((tmp_path / "reddi.json").read_text()) == record
    assert record["alternating"]["steps"] == 2000
    table = (tmp_path / "reddi-claims.md").read_text()
    assert all(f"| {row['id']} |" in table for row in record["claims"])
    for kind in ("svg", "png"):
        for paper in ("", "-dark"):
            assert (tmp_path / "images" / f"theory-reddi{paper}.{kind}").stat().st_size > 5000
    assert "S2.6" in (tmp_path / "reddi.html").read_text()


def test_run_without_figures(tmp_path):
    cli.run("reddi", tmp_path, quick=True, steps=500, seeds=2, figures=False, page=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reddi-claims.md", "reddi.json"]


def test_progress_is_shown_when_asked_for(tmp_path, capsys):
    cli.run("reddi", tmp_path, steps=300, seeds=2, figures=False, page=False, progress=True)
    seen = capsys.readouterr()
    assert "when Adam goes the wrong way" in seen.err
    assert seen.out == ""


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_drawn_from_the_committed_record(name, tmp_path):
    record = json.loads((ROOT / f"records/theory/{name}.json").read_text())
    drawn = figures.for_record(record)
    assert [figure.name for figure in drawn] == NAMES[name]
    assert all(figure.caption and figure.title for figure in drawn)
    for path in figures.save(drawn, tmp_path, formats=("svg",), themes=("light",)):
        committed = ROOT / "docs" / "images" / path.name
        assert words(committed) == words(path), (
            f"{path.name} is stale: python -m adaxopt.lab.theory.cli --redraw"
        )
        assert committed.with_name(f"{path.stem}-dark.svg").exists()


def words(picture: Path) -> list[str]:
    """Every text in a picture: the same whatever the theme and the renderer's version."""
    return re.findall(r"<text[^>]*>([^<]*)<", picture.read_text())


def test_unknown_names():
    with pytest.raises(LabError, match="study 'theorie': unknown; known are synthetic, reddi, theory"):
        cli.run("theorie", Path("nowhere"))
    with pytest.raises(ValueError, match="record 'x': figures are known for synthetic, reddi, theory"):
        figures.for_record({"name": "x"})


def test_an_output_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write"):
        cli.run("reddi", tmp_path / "file" / "below", steps=100, seeds=2)
