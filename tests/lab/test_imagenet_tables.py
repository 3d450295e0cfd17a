"""Tables of the ImageNet studies, from records made by hand."""

from __future__ import annotations

import pytest
from made_records import KNOWN, put_speed, run, speed_record

from adaxlab.paper.imagenet import RATES, STUDIES, TINY, TUNED, TUNING
from adaxlab.paper.tables import imagenet as tables
from adaxlab.paper.tables.study import caption, table
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


def test_a_table_from_records():
    found = [*ended_all("adaxw", 0.600, 0.602, 0.599), *ended_all("adamw", None, 0.573, 0.568, lr=1e-3)]
    layout = tables.layout(TINY, found)
    text = table(TINY, found, layout)
    assert "| AdaX-W | 0.005 | 0.0001 (0.391) | 3 | 60.03 (59.65 to 60.41) | 80.00 | 69.87 ± 0.05 |" in text
    assert "| 2 (1 failed) | 57.05 (" in text
    assert "200 classes, 100,000 images" in caption(TINY, found, layout)
    assert "validation images;" in caption(TINY, found, layout)


def test_what_tuning_tried():
    found = tuning({"sgdm": 0.1})
    lost = [ended("sgdm", TUNE_SEED, None, "imagenet/tuning", lr=3.0, purpose="tune")]
    found = [*lost, *(r for r in found if (r.row, r.spec["options"]["lr"]) != ("sgdm", 3.0))]
    layout = tables.layout(TUNING, found)
    text = table(TUNING, found, layout)
    row = next(one for one in text.splitlines() if one.startswith("| SGDM |"))
    assert row.endswith("| 0.01: 40.00 | 0.03: 40.00 | **0.1: 41.00** | 0.3: 40.00 | 1: 40.00 | 3: failed |")
    assert "held-out images" in caption(TUNING, found, layout)
    assert "1 of 30 runs were not executed." in caption(TUNING, found[1:], layout)


def test_a_best_rate_at_the_edge_of_the_study_it_follows_is_marked():
    found = [ended(row, 0, 0.5, TUNED.name, lr=lr) for row, lr in {"adamw": 1e-4, "sgdm": 0.1}.items()]
    text = table(TUNED, found, tables.layout(TUNED, found))
    assert "| AdamW | 0.0001 (edge) |" in text
    assert "| SGDM | 0.1 |" in text


@pytest.mark.parametrize("study", STUDIES, ids=lambda s: s.name)
def test_every_studys_rows_have_a_table(study):
    rows = [row.name for row in study.rows]
    text = tables.speed(speed_record({row: [4.0, 9.0, 4.5] for row in rows}, **KNOWN))
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
    section = tables.SECTIONS["imagenet-speed"]
    assert "Not measured yet" in section(tmp_path)
    text = section(put_speed(tmp_path, speed_record({"adaxw": [4.0, 9.0, 4.5]}, **turns)))
    assert "| training | 23,457 | 10.90 |" in text
    assert "| AdaX-W | 4.500 | 3 |" in text
    assert said in text


def test_no_rounds_are_rounds_that_were_not_measured():
    found = speed_record({})
    del found["in_turn"]
    assert tables.speed(found).endswith("torch 2. Alternating methods: not measured.")
