"""Tables of the ImageNet studies, from records made by hand."""

from __future__ import annotations

import pytest
from made_records import KNOWN, put_speed, run, speed_record

from adaxlab.paper.imagenet import RATES, STUDIES, TUNED, TUNING
from adaxlab.paper.tables import imagenet as tables
from adaxlab.store import export
from adaxlab.study import TUNE_SEED


def ended(row, seed, metric, study="imagenet/tiny", trained=0.8, lr=0.005, purpose="final"):
    """A run of ten epochs."""
    options = {"model": "resnet18", "stem": "small", "size": 64, "precision": "bf16"}
    metrics = [
        {"step": 3910, "epoch": 10, "train_loss": 1.0, "train_metric": trained, "metric": metric or 0.005}
    ]
    made = run(
        study, row, metric, seed=seed, lr=lr, purpose=purpose, metrics=metrics, task_options=options, epochs=10,
        batch_size=256,
    )  # fmt: skip
    made.spec["options"]["betas"] = [0.9, 1e-4]
    made.env["hardware"] = {"device": "a device"}
    made.done.update(steps=3910, images=100_000, test_images=10_000, classes=200)
    return made


def ended_all(row, *metrics, **rest):
    return [ended(row, seed, metric, **rest) for seed, metric in enumerate(metrics)]


def tuning(best, seed=TUNE_SEED):
    """Runs of tuning in which each method's `best` lr is the best."""
    return [
        ended(row, seed, 0.4 + 0.01 * (lr == best.get(row)), "imagenet/tuning", lr=lr, purpose="tune")
        for row, rates in RATES.items()
        for lr in rates
    ]


def commit(root, *runs):
    for study in {made.spec["study"] for made in runs}:
        export([r for r in runs if r.spec["study"] == study], root / "records" / f"{study}.jsonl")


HIGH, LOW = (0.600, 0.602, 0.599), (None, 0.573, 0.568)


def test_a_table_from_records(tmp_path):
    assert tables.table("tiny", tmp_path) == "*Not run yet (`adax reproduce imagenet/tiny`).*"
    commit(
        tmp_path,
        *ended_all("adaxw", *HIGH),
        *ended_all("adamw", *LOW, lr=1e-3),
        ended("sgdm", 0, None, lr=0.1),
    )
    text = tables.table("tiny", tmp_path)
    assert "| AdaX-W | 0.005 | 0.391 | 3 | 60.03 | 59.65 to 60.41 | 80.00 | 69.87 ± 0.05 |" in text
    assert "| AdamW | 0.001 |  | 2 (1 failed) | 57.05 |" in text
    assert "| SGDM | 0.1 |  | 0 | all 1 failed |  |  | 69.90 ± 0.04 |" in text
    assert "| AMSGrad(W) | 0.001 |  | 0 | not run |  |  | 66.64 ± 0.03 |" in text
    assert "200 classes, 100,000 images" in text
    assert "validation images; a device. `adax reproduce imagenet/tiny`." in text


def sgdm_row(text):
    return next(one for one in text.splitlines() if one.startswith("| SGDM |"))


def test_what_tuning_tried():
    runs = tuning({"sgdm": 0.1})
    failed = [ended("sgdm", TUNE_SEED, None, "imagenet/tuning", lr=3.0, purpose="tune")]
    runs = [*failed, *(r for r in runs if (r.row, r.spec["options"]["lr"]) != ("sgdm", 3.0))]
    text = tables.show(TUNING, runs)
    assert sgdm_row(text) == (
        "| SGDM |  | 3: failed | 1: 40.00 | 0.3: 40.00 | 0.1: **41.00** | 0.03: 40.00 | 0.01: 40.00 |"
    )
    assert text.endswith(" 1 runs failed.")
    assert "held-out images" in text
    cut = tables.show(TUNING, runs[1:])  # none is the best before all have ended
    assert sgdm_row(cut).startswith("| SGDM |  | 3: – | 1: 40.00 |")
    assert "**" not in cut
    assert cut.endswith(" 1 of 30 runs have not been made yet.")


def test_a_best_rate_at_the_edge_is_said(tmp_path):
    made = [
        ended(row, 0, 0.5, TUNED.name, lr=lr)
        for row, lr in {"adamw": 1e-4, "adaxw": 0.15, "sgdm": 0.1}.items()
    ]
    commit(tmp_path, *made, *ended_all("adaxw", *HIGH))
    # a row without runs is shown at the paper's lr
    assert tables.table("tuned", tmp_path).endswith(
        "Best at the edge of the tried learning rates: AdamW, AdaX-W."
    )
    assert "edge" not in tables.table("tiny", tmp_path)


@pytest.mark.parametrize("study", STUDIES, ids=lambda s: s.name)
def test_every_studys_rows_have_a_table(study, tmp_path):
    rows = [row.name for row in study.rows]
    text = tables.speed_table(speed_record({row: [4.0, 9.0, 4.5] for row in rows}, **KNOWN))
    assert text.count("| 4.500 | 3 |") == len(rows)


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        (KNOWN, "study tiny, 20 steps per round, compiled, with a CUDA graph."),
        ({**KNOWN, "compiled": False, "graph": False}, "not compiled, without a CUDA graph."),
        ({**KNOWN, "processes": 8}, "with a CUDA graph, 8 processes."),
    ],
)
def test_the_table_of_speeds_says_how(tmp_path, turns, said):
    assert "Not measured yet" in tables.speed(tmp_path)
    text = tables.speed(put_speed(tmp_path, speed_record({"adaxw": [4.0, 9.0, 4.5]}, **turns)))
    assert "| training | 23,457 | 10.90 |" in text
    assert "| AdaX-W | 4.500 | 3 |" in text
    assert said in text


def test_no_rounds_are_rounds_that_were_not_measured(tmp_path):
    found = speed_record({})
    del found["in_turn"]
    assert tables.speed(put_speed(tmp_path, found)).endswith("torch 2. Alternating methods: not measured.")
