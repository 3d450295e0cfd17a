"""The guide's table of best learning rates, from records made by hand."""

from __future__ import annotations

import json

import made_records
import pytest
from test_memories import run

from adaxlab.paper.tables import guide
from adaxlab.store import export


@pytest.mark.parametrize(
    ("scores", "higher", "expected"),
    [
        ({1e-3: 90.0, 1e-2: 91.0, 1e-1: 50.0}, True, (1e-2, False)),
        ({1e-3: 90.0, 1e-2: 91.0, 1e-1: 92.0}, True, (1e-1, True)),
        ({1e-3: 1.0, 1e-2: 2.0}, False, (1e-3, True)),
        ({1e-3: 3.0, 1e-2: 2.0, 1e-1: None}, False, (1e-2, False)),
        ({1e-3: None, 1e-2: None}, True, (None, False)),
    ],
)
def test_the_best_and_whether_it_is_enclosed(scores, higher, expected):
    assert guide.enclosed(scores, higher) == expected


def test_one_row_a_task(tmp_path):
    images = [
        made_records.run("imagenet/tuning", name, score, lr=lr, purpose="tune")
        for name, scores in {
            "adamw": {1e-3: 0.30, 1e-2: 0.31},
            "adaxw": {5e-3: 0.30, 1.5e-2: 0.32, 5e-2: None},
            "adaxw-b2T50": {1e-4: 0.99},
        }.items()
        for lr, score in scores.items()
    ]
    export(images, tmp_path / "records" / "imagenet" / "tuning.jsonl")
    trials = {"adam": {1e-3: 5.0, 1e-2: 4.0, 1e-1: 6.0}, "adax": {1e-3: 4.5, 5e-3: 4.0, 1e-1: None}}
    trials["adax@b2T=3"] = {1e-3: 4.5, 5e-3: 4.0}
    tuned = [
        run("language/ptb-wide", row, 0, end, "tune", lr)
        for row, ends in trials.items()
        for lr, end in ends.items()
    ]
    export(tuned, tmp_path / "records" / "language" / "ptb-wide.jsonl")
    runs = [
        made_records.run("voc/tuning", name, iou, lr=lr, purpose=purpose)
        for name, purpose, lr, iou in (
            ("torch:AdamW", "tune", 1e-4, 0.7),
            ("torch:AdamW", "tune", 3e-4, None),
            ("adaxw", "tune", 1e-4, 0.6),
            ("adaxw", "tune", 3e-4, 0.8),
            ("adaxw", "tune", 1e-3, 0.7),
            ("adaxw", "final", 1e-2, 0.9),
        )
    ]
    export(runs, tmp_path / "records" / "voc" / "tuning.jsonl")
    text = guide.best_lr(tmp_path)
    assert "ResNet-50, b2·T = 2 | 2 and 3 | 0.0001* | 0.0003 | 3 |" in text
    assert "ResNet-18, b2·T = 0.78 | 2 and 3 | 0.01* | 0.015 | 1.5 |" in text
    assert "LSTM, b2·T = 35 | 3 each | 0.01 | 0.005 | 0.5 |" in text
    assert "ResNet-18, b2·T = 50 | 2 and 1 | 0.01* | 0.0001* | 0.01 |" in text
    assert text.count("\n| [") == 5
    assert text.endswith("at the edge of the tried range.")


def test_small_tasks_and_rows_that_diverged(tmp_path):
    assert guide.best_lr(tmp_path).startswith("*Not run yet")
    rows = [
        {
            "task": "t",
            "optimizer": name,
            "lr": lr,
            "mean": mean,
            "diverged": mean is None,
            "higher_is_better": False,
        }
        for name, means in {"adamw": (3.0, 2.0, None), "adaxw": (None, None, None)}.items()
        for lr, mean in zip((1e-3, 1e-2, 1e-1), means, strict=True)
    ]
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "first_lr.json").write_text(json.dumps({"rows": rows}))
    cut = run("cifar10/tuning", "sgdm", 0, 0.9, "tune", 1.0)  # a study cut short
    export([cut], tmp_path / "records" / "cifar10" / "tuning.jsonl")
    text = guide.best_lr(tmp_path)
    assert text.count("\n") == 2
    assert text.endswith("b2·T = 2 | 3 each | 0.01 | all diverged |  |")
