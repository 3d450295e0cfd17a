"""Tables in README.md and docs/ are functions of the code and of records/."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import run

from adaxlab import store
from adaxlab.claim import family
from adaxlab.paper import catalogue, pages

ROOT = Path(__file__).resolve().parents[2]


def test_every_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert pages.main(["--check"], ROOT) == 0, capsys.readouterr().out


def test_a_stale_table_is_named_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- methods: begin -->\nold\n<!-- methods: end -->\nafter\n")
    assert pages.main(["--check"], tmp_path) == 1
    assert "README.md: not current; run make docs" in capsys.readouterr().out
    assert pages.main([], tmp_path) == 0
    text = page.read_text()
    assert "old" not in text
    assert "| `adaxw` | b2/((1+b2)^t − 1) | 0.5 | 0.005 | b1 0.9, b2 0.0001 | decoupled 0.05 |" in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert pages.main(["--check"], tmp_path) == 0


def test_an_unknown_mark_is_an_error() -> None:
    with pytest.raises(ValueError, match="mark 'nothing': unknown; known are methods"):
        pages.filled("<!-- nothing: begin --><!-- nothing: end -->", ROOT)


def test_a_study_with_some_of_its_runs_is_unfinished(tmp_path: Path) -> None:
    assert "### Unfinished" not in pages.others("gpt")(tmp_path)
    study = catalogue.study("gpt-short")
    row = study.rows[0]
    given = {"epochs": study.epochs, "task_options": dict(study.options_of(row))}
    ended = [run(study.name, row.name, 1.0, seed=study.first_seed + i, **given) for i in range(2)]
    begun = replace(run(study.name, row.name, 1.0, seed=study.first_seed + 2, **given), done=None)
    store.export([*ended, begun], tmp_path / "records" / "unfinished" / "gpt-short.jsonl")
    text = pages.others("gpt")(tmp_path)
    unfinished, waiting = text.split("### Not run yet")
    assert f"- `gpt-short`: {study.title} (2 of {study.runs()} runs)" in unfinished
    assert "gpt-short" not in waiting
    assert "- `gpt-noise`" in waiting


def test_lr_table_shows_mean_deviation_and_divergence() -> None:
    row = {"task": "t", "optimizer": "adamw", "b2": 0.9, "metric": "loss", "higher_is_better": False}
    rows = [
        {**row, "lr": 0.1, "n": 2, "diverged": 0, "mean": 2.0, "values": [1.0, 3.0]},
        {**row, "lr": 0.2, "n": 0, "diverged": 2, "mean": None, "values": []},
    ]
    text = pages.lr({"rows": rows})
    assert "| adamw | **2.000 ± 1.414** | diverged |" in text
    assert "n = 2" in text


def test_every_headline_is_a_claim_and_its_link_leads_somewhere() -> None:
    for key in pages.HEADLINES:
        claims = (ROOT / "docs" / f"claims-{family(key)}.md").read_text()
        assert f'<a id="claim-{key.replace(".", "-").lower()}"></a>' in claims, key
    assert "not run" not in pages.claims(ROOT).split(pages.SELECTION)[1]


def test_every_picture_is_shown_and_every_shown_one_is_there() -> None:
    pages_ = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for page in pages_ for name in re.findall(r'images/([\w.-]+\.svg)"', page.read_text())}
    assert shown == {path.name for path in (ROOT / "docs" / "images").glob("*.svg")}
