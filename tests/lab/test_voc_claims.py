"""Segmentation: verdicts on made-up runs, tables, the committed claims, and how the data are fetched."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import voc_sets

from adaxlab import data
from adaxlab.data import camvid, resnet50
from adaxlab.errors import LabError
from adaxlab.paper.voc import ADAMW, ADAXW, SGDM
from adaxlab.store import RunRecord
from adaxlab.voc import book, claims, rules, tables

ROOT = Path(__file__).parents[2]


def fake(row, seed, iou, losses=(1.0, 1.0, 1.0, 1.0), purpose="final", lr=1.0):
    status = "finished" if iou is not None else "diverged"
    lines = [
        {"step": 500 * (i + 1), "train_loss": loss, "metric": (iou or 0) / 100}
        for i, loss in enumerate(losses)
    ]
    done = {"status": status, "metric": None if iou is None else iou / 100, "seconds": 100.0}
    spec = {"study": "s", "optimizer": row, "seed": seed, "purpose": purpose, "options": {"lr": lr}}
    env = {"hardware": {"device": "gpu"}, "versions": {"torch": "2"}}
    return RunRecord(spec, env, lines, done, Path("s"))


def runs(a, b, **more):
    rows = ((ADAXW, a), (SGDM, b))
    return [fake(row, seed, iou, **more) for row, values in rows for seed, iou in enumerate(values)]


CASES = {
    "above, seed by seed": (runs([50, 60, 70], [49, 59.1, 68.9]), "held", 3),
    "below": (runs([49, 59.1, 68.9], [50, 60, 70]), "not held", 3),
    "either": (runs([50, 60, 70], [49, 61, 70]), "undecided", 3),
    "two seeds": (runs([50, 60], [49, 59]), "undecided", 2),
    "one diverged": (runs([50, 60, 70, None], [49, 59.1, 68.9, 50]), "not held", 3),
    "one row": (runs([50, 60, 70], []), "undecided", 0),
}


@pytest.mark.parametrize("what", CASES)
def test_verdicts_on_iou(what):
    records, verdict, n = CASES[what]
    row = claims.judge(rules.CLAIMS[0], records)
    assert (row["verdict"], row["n"]) == (verdict, n)
    assert row["ours"].startswith("not run") == (n == 0)
    if what == "above, seed by seed":  # 1.0, 0.9, 1.1: mean 1, sd 0.1, t(2) = 4.3027
        half = 4.302652729911275 * 0.1 / 3**0.5
        assert f"{1:+.2f} [{1 - half:+.2f}, {1 + half:+.2f}]" in row["ours"]
        half = 2.776445 * ((100 + 99.01) / 3) ** 0.5  # Welch's, of the two rows' variances
        wanted = f"; without pairing by seed [{1 - half:+.2f}, {1 + half:+.2f}], which would be undecided"
        assert row["ours"].endswith(wanted)


def test_losses_have_three_decimals_and_a_direction():
    faster = next(claim for claim in rules.CLAIMS if claim.rule == "faster")
    quick = [fake(ADAXW, s, 50, (0.301 + 0.1 * s,) * 4) for s in range(3)]
    slow = [fake(SGDM, s, 50, (0.305 + 0.1001 * s,) * 4) for s in range(3)]
    row = claims.judge(faster, slow + quick)
    assert row["verdict"] == "held"
    assert row["ours"].startswith(
        "0.401 and 0.405; better by +0.004 [+0.004, +0.004]; without pairing by seed [-0.22"
    )


def test_comparisons_of_ours_are_not_counted_as_the_papers():
    for claim in rules.CLAIMS:
        ours = claim.id.endswith("-tuned")
        assert (claim.paper == "(ours)") == ours, claim.id
        assert claim.where.startswith("Beyond the paper") == ours, claim.id
        if ours and claim.rule == "better":
            theirs = next(one.paper for one in rules.CLAIMS if f"{one.id}-tuned" == claim.id)
            assert claim.note.endswith(f"paper, at its own settings on VOC2012: {theirs}")
            paper = [book.PAPER[row] for row in (claim.a, claim.b)]
            assert theirs == " against ".join(f"{mean:.2f} +- {margin:.2f}" for mean, margin in paper)


def test_verdicts_on_speed_time_and_rates():
    faster = next(claim for claim in rules.CLAIMS if claim.rule == "faster")
    slow = [fake(SGDM, s, 50, (1.5 + 0.01 * s, 1.2, 1.0, 0.1)) for s in range(3)]
    quick = [fake(ADAXW, s, 50, (1.0, 0.9, 0.8, 9.0)) for s in range(3)]  # the last quarter does not count
    assert claims.judge(faster, slow + quick)["verdict"] == "held"
    swapped = [
        dataclasses.replace(r, spec={**r.spec, "optimizer": {SGDM: ADAXW, ADAXW: SGDM}[r.spec["optimizer"]]})
        for r in slow + quick
    ]
    assert claims.judge(faster, swapped)["verdict"] == "not held"
    time = next(claim for claim in rules.CLAIMS if claim.rule == "as-fast")
    for factor, verdict in ((1.01, "held"), (1.2, "not held"), (0.8, "not held"), (1.05, "undecided")):
        ms = {ADAXW: [20 * factor + 0.1 * s for s in (-1, 0, 1)], ADAMW: [20.0] * 3}
        judged = claims.judge(time, [], ms)
        assert (judged["verdict"], judged["n"]) == (verdict, 3), factor
    assert claims.judge(time, slow + quick)["ours"].startswith("not run")
    two = claims.judge(time, [], {ADAXW: [20.0, 20.0, 20.0], ADAMW: [20.0, 20.0]})
    assert (two["ours"], two["n"]) == ("2 rounds, fewer than 3 decide nothing", 2)
    ratio = next(claim for claim in rules.CLAIMS if claim.rule == "lr-ratio")
    for lr, verdict in (
        (10.0, "held"),
        (40.0, "held"),
        (2.5, "held"),
        (160.0, "not held"),
        (1.0, "not held"),
    ):
        pair = [fake(ADAXW, 0, 50, lr=lr), fake(ADAMW, 0, 50, lr=1.0)]
        judged = claims.judge(ratio, pair)
        assert (judged["verdict"], judged["ours"]) == (
            verdict,
            f"{lr:g} against 1, {lr:.2g} times; held from 2.5 to 40",
        )
    tried = [
        fake(ADAMW, 10000, iou, purpose="tune", lr=lr)
        for lr, iou in ((0.3, 40), (1.0, 52), (3.0, 51.75), (9.0, None))
    ]
    assert claims.judge(ratio, pair + tried)["ours"].endswith(
        "; the latter's second best, 3, was 0.25 points behind"
    )


def test_the_table_has_every_row_and_the_papers_numbers(tmp_path):
    assert tables.camvid(tmp_path) == "*Not run yet (`adax reproduce voc/camvid`).*"
    found = [*runs([50, 60, 70], [None, 40, 42]), fake(ADAXW, 10000, 33, purpose="tune", lr=0.5)]
    lines = tables.show(book.STUDIES["tuning"], found).splitlines()
    assert "at 500 / 1,000 / 1,500 / 2,000 steps" in lines[0]
    assert lines[2].startswith("| SGDM | 1 |  | 2 (1 diverged) | 41.00 (")
    assert lines[2].endswith("| 76.28 ± 0.15 |")
    assert lines[3].startswith("| AdamW | not run |")
    assert (
        "| AdaX-W | 1 | 0.5: 33.0 | 3 | 60.00 (35.16 to 84.84) | 60.0 / 60.0 / 60.0 / 60.0 | 1.000 (1.000) | "
        in lines[5]
    )
    found = [fake(SGDM, seed, 50, (1.0, 0.5, 0.3, 0.1)) for seed in range(3)]
    lines = tables.show(book.STUDIES["camvid"], found).splitlines()
    assert "| training loss, first three quarters (the first) |" in lines[0]
    assert "| 0.600 (1.000) |" in lines[2]


def test_the_table_of_speeds(tmp_path):
    assert tables.SECTIONS["voc-speed"](tmp_path) == "*Not measured yet (`python benchmarks/voc.py`).*"
    where = {"gpu": "a device", "torch": "2"}
    record = {"steps": 20, "environment": where, "ms": {ADAXW: [4.0, 9.0, 4.5], "another": [1.0]}}
    place = tmp_path / "records" / "voc"
    place.mkdir(parents=True)
    (place / "speed.json").write_text(json.dumps(record))
    text = tables.speed(tmp_path)
    assert "| AdaX-W | 4.50 | 4.00 | 9.00 | 3 |" in text
    assert "| another | 1.00 | 1.00 | 1.00 | 1 |" in text
    assert "20 steps a round" in text
    assert "a device, torch 2." in text


def test_the_committed_claims_are_what_the_records_give(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert claims.main(["--check"]) == 0
    assert claims.main(["--records", str(tmp_path), "--check"]) == 1
    assert "voc.json: is not what the records give" in capsys.readouterr().err
    assert claims.main(["--records", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "claims" / "voc.json").read_text())
    assert {row["ours"].split(" (")[0] for row in rows} == {"not run"}
    assert len({row["id"] for row in rows}) == len(rows) == 16


# -- getting it -------------------------------------------------------------------------------------------------------


def test_camvid_is_fetched_with_git_and_checked(tmp_path, monkeypatch):
    made = voc_sets.camvid(tmp_path / "origin")
    for words in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=made, check=True)
    monkeypatch.setattr(camvid.fetch, "__defaults__", (made.as_uri(),))
    heard = []
    with pytest.raises(LabError, match=r"CamVid there has sha256 .*; not used"):
        data.get("camvid", tmp_path / "data", heard.append)
    monkeypatch.setattr(camvid, "DIGEST", camvid.digest(made))
    found = data.get("camvid", tmp_path / "data", heard.append)
    assert found.folder == tmp_path / "data" / "camvid"
    assert "CC BY-NC" in str(found)
    assert "checking" in heard[-1]  # and no more: the copy that was there is the set
    (found.folder / "CamVid" / "train" / "s0.png").write_bytes(b"")
    assert data.get("camvid", tmp_path / "data", heard.append).digest == camvid.DIGEST
    monkeypatch.setattr(camvid.fetch, "__defaults__", ((tmp_path / "nowhere").as_uri(),))
    with pytest.raises(LabError, match=r"git could not fetch .*nowhere"):
        data.get("camvid", tmp_path / "more", heard.append)


def test_weights_are_checked_by_what_they_decode_to(tmp_path, monkeypatch):
    (tmp_path / "model.json").write_text(
        json.dumps(
            {
                "weightsManifest": [
                    {
                        "paths": ["a.bin"],
                        "weights": [{"name": "fc1000/bias", "shape": [2], "dtype": "float32"}],
                    }
                ]
            }
        )
    )
    (tmp_path / "a.bin").write_bytes(np.array([1, 2], dtype="<f4").tobytes())
    with pytest.raises(LabError, match=r"the network there has sha256 .*, the published one"):
        data.get("resnet50-weights", tmp_path, lambda line: None)
    monkeypatch.setattr(resnet50, "DIGEST", resnet50.digest(tmp_path))
    assert data.get("resnet50-weights", tmp_path, lambda line: None).folder == tmp_path
    (tmp_path / "a.bin").write_bytes(np.array([1, 3], dtype="<f4").tobytes())
    assert resnet50.digest(tmp_path) != resnet50.DIGEST
