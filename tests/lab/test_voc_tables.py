"""Segmentation: tables from made-up runs, and how the data are fetched."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
import voc_sets

from adaxlab import data
from adaxlab.data import camvid, resnet50
from adaxlab.errors import LabError
from adaxlab.paper.tables import voc as tables
from adaxlab.paper.tables.study import table
from adaxlab.paper.voc import ADAXW, SGDM, STUDIES
from adaxlab.store import RunRecord


def fake(row, seed, iou, losses=(1.0, 1.0, 1.0, 1.0), purpose="final", lr=1.0):
    status = "finished" if iou is not None else "diverged"
    lines = [
        {"step": 500 * (i + 1), "train_loss": loss, "metric": (iou or 0) / 100}
        for i, loss in enumerate(losses)
    ]
    done = {"status": status, "metric": None if iou is None else iou / 100, "seconds": 100.0}
    done |= {"steps": 2000, "metric_name": "IoU", "higher_is_better": True}
    spec = {
        "study": "s",
        "row": row,
        "optimizer": row,
        "seed": seed,
        "purpose": purpose,
        "options": {"lr": lr},
    }
    env = {"hardware": {"device": "gpu"}, "versions": {"torch": "2"}}
    return RunRecord(spec, env, lines, done, Path("s"))


def runs(a, b, **more):
    rows = ((ADAXW, a), (SGDM, b))
    return [fake(row, seed, iou, **more) for row, values in rows for seed, iou in enumerate(values)]


def test_the_table_has_the_quarters_of_a_run():
    found = [*runs([50, 60, 70], [None, 40, 42]), fake(ADAXW, 10000, 33, purpose="tune", lr=0.5)]
    lines = table(STUDIES[1], found, tables.layout(STUDIES[1], found)).splitlines()
    assert "| mean IoU, % (95%) | at 500 / 1,000 / 1,500 / 2,000 steps |" in lines[0]
    assert lines[2].startswith("| SGDM | 1 |")
    assert "| 2 (1 failed) | 41.00 (" in lines[2]
    assert lines[2].endswith("| 76.28 ± 0.15 |")
    assert "| not run |" in lines[3]
    assert "| 3 | 60.00 (35.16 to 84.84) | 60.0 / 60.0 / 60.0 / 60.0 | 1.000 (1.000) | " in lines[5]
    found = [fake(SGDM, seed, 50, (1.0, 0.5, 0.3, 0.1)) for seed in range(3)]
    lines = table(STUDIES[0], found, tables.layout(STUDIES[0], found)).splitlines()
    assert "| training loss, mean over the first three quarters (first quarter) |" in lines[0]
    assert "| 0.600 (1.000) |" in lines[2]


def test_the_table_of_speeds(tmp_path):
    assert tables.SECTIONS["voc-speed"](tmp_path) == "*Not measured yet (`python benchmarks/voc.py`).*"
    where = {"gpu": "a device", "torch": "2"}
    record = {"steps": 20, "environment": where, "ms": {ADAXW: [4.0, 9.0, 4.5], "another": [1.0]}}
    text = tables.speed(record)
    assert "| AdaX-W | 4.50 | 4.00 | 9.00 | 3 |" in text
    assert "| another | 1.00 | 1.00 | 1.00 | 1 |" in text
    assert "20 steps per round" in text
    assert "a device, torch 2." in text


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
