"""`run` writes what it says, figures are drawn from the committed records, and wrong names are told the right ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adaxlab import cli as command
from adaxlab.errors import LabError
from adaxlab.paper.theory import cli, figures

ROOT = Path(__file__).parents[2]
NAMES = {
    "reddi": ["reddi"],
    "synthetic": ["figure-3a"],
    "theory": ["memory", "gain", "lemma-4-1", "regret-bound", "rate"],
}


def test_run_writes_the_record_and_shows_claims(tmp_path, capsys):
    words = ["--seeds", "2", "--set", "quick=true", "steps=2000"]
    assert command.main(["reproduce", "reddi", "--out", str(tmp_path), *words]) == 0
    record = json.loads((tmp_path / "reddi" / "reddi.json").read_text())
    assert record["alternating"]["steps"] == 2000
    shown = capsys.readouterr().out
    for row in record["claims"]:
        assert shown.count(f"  {row['id']}") == 1


def test_run_into_the_records(tmp_path):
    path = cli.run("reddi", tmp_path / "runs", quick=True, steps=500, seeds=2, records=str(tmp_path))
    assert path == tmp_path / "theory" / "reddi.json"
    assert [p.name for p in tmp_path.rglob("*")] == ["theory", "reddi.json"]


def test_a_shortened_study_is_not_written_to_the_records(tmp_path, capsys):
    words = ["--records", str(tmp_path), "--seeds", "2", "--set", "steps=500"]
    assert command.main(["reproduce", "reddi", *words]) == 2
    assert "reddi has changed settings (seeds, steps); records are written only" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_quiet(tmp_path, capsys):
    words = ["--out", str(tmp_path), "--quiet", "--seeds", "2", "--set", "steps=500"]
    assert command.main(["reproduce", "reddi", *words]) == 0
    assert capsys.readouterr().err == ""


def test_progress_is_shown_when_asked_for(capsys):
    cli.compute("reddi", steps=300, seeds=2, progress=True)
    seen = capsys.readouterr()
    assert "when Adam goes the wrong way" in seen.err
    assert seen.out == ""


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_is_drawn_from_the_committed_record(name, tmp_path):
    record = json.loads((ROOT / f"records/theory/{name}.json").read_text())
    drawn = figures.for_record(record)
    assert [figure.name for figure in drawn] == NAMES[name]
    assert all(figure.title for figure in drawn)
    for path in figures.save(drawn, tmp_path, themes=("light",)):
        committed = ROOT / "docs" / "images" / path.name
        assert words(committed) == words(path), f"{path.name} is stale: python -m adaxlab.paper.figures"
        assert committed.with_name(f"{path.stem}-dark.svg").exists()


def words(picture: Path) -> list[str]:
    """Every text in a picture: the same whatever the theme and the renderer's version."""
    return re.findall(r"<text[^>]*>([^<]*)<", picture.read_text())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("theorie", {}, "unknown study 'theorie'; known are synthetic, reddi, theory"),
        ("reddi", {"step": 5}, "unknown setting of study reddi 'step'; known are steps, seeds"),
        ("reddi", {"steps": 0}, "steps=0: must be a whole number >= 1"),
        ("reddi", {"seeds": 1}, "seeds=1: must be a whole number >= 2"),
        ("theory", {"full": "no"}, "full='no': must be true or false"),
    ],
)
def test_errors_say_what_is_allowed(tmp_path, name, options, message):
    with pytest.raises(LabError, match=message):
        cli.run(name, tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_figures_of_an_unknown_record():
    with pytest.raises(ValueError, match="record 'x': figures are known for synthetic, reddi, theory"):
        figures.for_record({"name": "x"})


def test_an_output_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LabError, match="cannot write"):
        cli.run("reddi", tmp_path / "file", steps=100, seeds=2)
