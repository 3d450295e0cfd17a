"""Every claim as data, and what `adax claims` writes from the committed records."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from adaxlab import cli, records, stats
from adaxlab.judge import judge
from adaxlab.measures import MEASURES
from adaxlab.paper import catalogue, language
from adaxlab.paper.cifar10_added_claims import POST_HOC
from adaxlab.paper.claims import FAMILIES, judged, show, verdicts
from adaxlab.paper.imagenet_claims import PAPER_LR

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "records"
CLAIMS = [claim for claims in FAMILIES.values() for claim in claims]


# -- the claims -----------------------------------------------------------------------------------------------------


def names_of(study):
    """The rows of a study, from the files that say what is run."""
    timed = {"voc/speed": "voc/camvid", "imagenet/speed": "imagenet/tiny", "language/speed": "language/ptb"}
    return {row.name for row in catalogue.study(timed.get(study, study)).rows}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.id)
def test_claims_speak_of_rows_that_exist(claim):
    for name in filter(None, (claim.a, claim.b)):
        study, _, row = f"{claim.study.partition('/')[0]}/{name}".rpartition(": ")
        assert (row if study else name) in names_of(study or claim.study)
    assert (claim.b == "") == (claim.rule in ("below", "equals_paper"))
    assert all(claim.rule in MEASURES[measure].rules for measure in claim.measures)
    assert not claim.note.startswith(";")
    assert "; ;" not in claim.note
    assert claim.where.startswith("Beyond the paper") <= claim.ours


def test_ids_are_unique_and_later_claims_are_post_hoc_or_say_why_not():
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS)
    seen = {f"cifar10/{name}" for name in ("table2", "tuned", "fresh", "lr", "padax")}
    later = {claim.id for claim in POST_HOC if claim.study in seen} | {"cifar10.adamnx-adaxw-over-adamw"}
    assert {claim.id for claim in POST_HOC if claim.post_hoc} == later


def test_the_margin_that_was_not_taken_is_said():
    """Within half a decade, the step of the first grid, the ratio of the tuned rates would be inconclusive."""
    runs = records.load(RECORDS, language.WIDE.name)
    asked = [
        replace(claim, margin=10**0.5) if claim.rule == "paper_ratio" else claim
        for claim in language.CLAIMS
        if language.WIDE.name in (claim.study, claim.retest)
    ]
    (row,) = (row for row in judge(asked, runs) if row["id"].endswith("lr-ratio"))
    assert (row["verdict"], f"{row['p']:.3f}") == ("inconclusive", "0.064")
    assert "it would be inconclusive (adjusted p = 0.064)" in row["note"]


def test_the_answer_about_adamnx_is_that_of_its_claims():
    """The tables in docs/method.md are written by hand: differences, which of them are decided, settings."""
    text = (ROOT / "docs" / "method.md").read_text()
    lines = [
        line for line in text.splitlines() if line.startswith(("| AdamNX - ", "| 1. ", "| 2. ", "| 3. "))
    ]
    names = ("over-adam", "over-adax", "over-adam-0.01", "eps", "mean", "decay")
    found = {row["id"]: row for row in judged(RECORDS)["cifar10"]}
    runs = records.load(RECORDS, "cifar10/adamnx")
    given = {run.row: run.spec["options"] for run in runs}
    words = {"supported": "no change", "contradicted": "worse", "inconclusive": "inconclusive"}
    for name, line in zip(names, lines, strict=True):
        row = found[f"cifar10.adamnx-{name}"]
        (claim,) = (claim for claim in CLAIMS if claim.id == row["id"])
        *head, tried, difference, verdict = (cell.strip() for cell in line.strip("|").split("|"))
        rows = [given[each] for each in ((claim.b, claim.a) if " to " in tried else (claim.a, claim.b))]
        assert [float(rate) for rate in tried.replace(" to ", ", ").split(", ")] == [
            each["lr"] for each in rows
        ]
        assert len(head) < 2 or [float(x) for x in head[1].split(", ")] == [
            each["weight_decay"] for each in rows
        ]
        assert row["estimate"]["text"] == difference, line
        assert verdict.startswith(words[row["verdict"]]), line

    scores = {name: {r.spec["seed"]: 100 * r.done["metric"] for r in runs if r.row == name} for name in given}
    for name in ("adamw, decay 0.01", "adaxw, eps 1e-8, debiased mean"):
        seen = stats.t_interval([x - scores["adamw"][seed] for seed, x in scores[name].items()], 0.95)
        assert f"{seen.mean:+.2f} [{seen.low:+.2f}, {seen.high:+.2f}] (post hoc)" in text
    assert found["cifar10.adamnx-adaxw-over-adamw"]["estimate"]["text"] == "-0.16 [-0.32, -0.01]"
    for page in ("cifar10", "should-i-use-adax"):
        assert "0.16 points [0.01, 0.32] (n = 22)" in (ROOT / "docs" / f"{page}.md").read_text()


def test_claims_that_share_a_retest_share_their_study():
    """So that the claims of a study are adjusted together on pages that show one study."""
    for claim in CLAIMS:
        assert {other.study for other in CLAIMS if claim.retest and other.retest == claim.retest} <= {
            claim.study
        }


def test_imagenets_notes_say_which_lr():
    for claim in FAMILIES["imagenet"]:
        ours = ("imagenet.tuned.", "imagenet.b2T50.", "imagenet.r50.tuned.")
        assert claim.ours == claim.id.startswith(ours), claim.id
        assert (PAPER_LR in claim.note) == (claim.study == "imagenet/tiny"), claim.id


def test_the_papers_differences_are_those_of_its_tables():
    """Recomputed from the tables' means, in hundredths; of our own comparisons, the one in the note."""
    values = {"tiny": dict(sgdm=69.90, adamw=66.92, amsgradw=66.64, adaxw=69.87)}
    values["tiny-resnet50"] = dict(sgdm=77.12, adamw=68.27, amsgradw=68.76, adaxw=75.58)
    checked = 0
    for claim in FAMILIES["imagenet"]:
        if not claim.paper or not claim.paper.endswith("on ImageNet"):
            continue
        study = claim.study.removeprefix("imagenet/")
        table = values[
            "tiny-resnet50" if study == "r50-tuned" else "tiny" if study.startswith("tuned") else study
        ]
        assert claim.paper == f"{table[claim.a.removesuffix('-b2T50')] - table[claim.b]:+.2f} on ImageNet"
        assert claim.ours == (f"paper, at its own settings: {claim.paper}" in claim.note), claim.id
        checked += 1
    assert checked == 22


# -- what is committed ----------------------------------------------------------------------------------------------


def test_the_committed_files_are_what_the_records_give(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert cli.main(["claims", "--check"]) == 0
    assert capsys.readouterr().err == ""


def test_the_command_writes_names_what_is_stale_and_prints(tmp_path, capsys):
    shutil.copytree(RECORDS / "theory", tmp_path / "records" / "theory")
    shutil.copytree(RECORDS / "voc", tmp_path / "records" / "voc")
    where = ["claims", "--records", str(tmp_path / "records")]
    assert cli.main([*where, "--check"]) == 1
    assert "voc.json" in capsys.readouterr().err
    assert cli.main(where) == 0
    assert "\ncontradicted: " in capsys.readouterr().out
    assert cli.main([*where, "--check"]) == 0
    made = tmp_path / "records" / "claims"
    assert (made / "voc.json").read_text() == (RECORDS / "claims" / "voc.json").read_text()
    assert all(row["verdict"] == "not run" for row in json.loads((made / "language.json").read_text()))
    (made / "voc.json").write_text("[]\n")
    (tmp_path / "docs" / "claims.md").write_text("edited")
    (tmp_path / "docs" / "claims-voc.md").write_text("edited")
    assert cli.main([*where, "--check"]) == 1
    error = capsys.readouterr().err
    assert "voc.json, " in error
    assert "claims.md, " in error
    assert "claims-voc.md; run `adax claims` to rewrite them" in error
    assert "language.json" not in error
    assert cli.main([*where, "--study", "voc/tuning"]) == 0
    assert "supported: 4\n  voc.adaxw-over-sgdm-tuned (provisional, n = 3): " in capsys.readouterr().out
    assert cli.main([*where, "--study", "reddi"]) == 0
    assert "  S2.5: " in capsys.readouterr().out
    assert cli.main([*where, "--study", "voc/none"]) == 2
    assert "cifar10/beta1, " in capsys.readouterr().err
    assert cli.main(["claims", "--records", str(tmp_path / "nowhere")]) == 2


def test_a_study_is_judged_from_its_own_records():
    rows = verdicts("imagenet/tuned", records.load(RECORDS, "imagenet/tuned"))
    ids = [claim.id for claim in FAMILIES["imagenet"] if claim.study == "imagenet/tuned"]
    assert rows == [row for row in judged(RECORDS)["imagenet"] if row["id"] in ids]
    assert show(rows).startswith(
        "supported: 2\n  imagenet.tuned.adaxw-over-adamw (provisional, n = 3): "
        "AdaX-W has a higher final accuracy than AdamW\n      48.45 - "
    )
    assert verdicts("gpt", []) == []


# -- records --------------------------------------------------------------------------------------------------------


FILES = sorted(set(RECORDS.glob("*/*.jsonl")) - set(RECORDS.glob("unfinished/*")))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_record_file_gives_run_records(path):
    family = path.parent.name
    study = family if path.stem == family else f"{family}/{path.stem}"
    found = records.load(RECORDS, study)
    kinds = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(found) == sum("kind" not in line for line in kinds)
    for run in found:
        assert run.spec["study"] == study
        assert run.spec["purpose"] in ("tune", "final")
        assert {"row", "optimizer", "options", "seed", "epochs"} <= set(run.spec)
        assert {"status", "metric", "metric_name", "higher_is_better", "steps", "seconds"} <= set(run.done)
        assert run.status == "diverged" or run.metrics[-1]["step"] == run.done["steps"]
