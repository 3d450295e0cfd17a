"""The guide's table of memories, from records made by hand; its b2*T against the committed ones."""

from __future__ import annotations

from pathlib import Path

import made_records
import pytest

from adaxlab import records as committed
from adaxlab import spec, store
from adaxlab.paper.tables import guide

RECORDS = Path(__file__).parents[2] / "records"


def run(study, row, seed, metric, purpose="final", lr=1e-3):
    """A run that ended so; None: it diverged."""
    done = {"status": "finished" if metric is not None else "diverged", "metric": metric, "train_loss": 1.0}
    done |= {"metric_name": "loss", "higher_is_better": False, "steps": 2, "seconds": 1.0, "schema": 2}
    given = spec.make(
        study=study, task="digits", row=row, optimizer="adax", options={"lr": lr}, epochs=1, batch_size=1, seed=seed,
        purpose=purpose, trial=None,
    )  # fmt: skip
    given["task_options"] = {"row": row}  # another run than that of the other rows
    lines = [{"step": 2, "metric": metric, "train_loss": 1.0}] * (metric is not None)
    return store.RunRecord(given, {}, lines, done, Path())


@pytest.mark.parametrize(
    ("long", "said"),
    [
        ((51.0, 61.1, 70.9), "+1.00 (+0.75 to +1.25) points | larger b2·T (provisional) |"),
        ((49.0, 59.1, 68.9), "-1.00 (-1.25 to -0.75) points | smaller b2·T (provisional) |"),
        ((49.0, 61.0, 70.0), "+0.00 (-2.48 to +2.48) points | no significant difference |"),
    ],
)
def test_two_memories_on_the_same_seeds(tmp_path, long, said):
    assert guide.memories(tmp_path).startswith("*Not run yet")
    rows = {
        "adaxw": (50, 60, 70, 80),
        "adaxw-b2T50": (*long, None),
        "adamw": (1, 2, 3),
    }  # the last one failed
    runs = [
        made_records.run("imagenet/tuned", row, None if value is None else value / 100, seed=seed)
        for row, values in rows.items()
        for seed, value in enumerate(values)
    ]
    runs.append(made_records.run("imagenet/tuned", "adaxw", 0.5, seed=9))
    store.export(runs, tmp_path / "records" / "imagenet" / "tuned.jsonl")
    found = guide.memories(tmp_path).splitlines()
    assert (
        found[2] == f"| [Tiny-ImageNet](imagenet.md), ResNet-18, each at its best lr | 0.78 | 50 | 3 | {said}"
    )
    assert len(found) == 3


def test_of_losses_the_lower_is_better(tmp_path):
    runs = [
        run("language/ptb-wide", name, seed, end)
        for name, ends in (("adax@b2T=3", (4.0, 4.1, 4.2)), ("adax", (4.2, 4.31, 4.39)))
        for seed, end in enumerate(ends)
    ]
    store.export(runs, tmp_path / "records" / "language" / "ptb-wide.jsonl")
    assert "| 3 | 35 | 3 | -0.200 (-0.225 to -0.175) nats | smaller b2·T (provisional) |" in guide.memories(
        tmp_path
    )


def b2_steps():
    """b2*T of every row that is compared, from the runs themselves."""
    for study in ("cifar10/beta2-new", "imagenet/tiny", "imagenet/tuned", "voc/camvid"):
        for run in committed.load(RECORDS, study):
            if run.row.startswith("adaxw"):
                yield run.spec["options"]["betas"][1] * run.done["steps"]
    for name in ("gpt", "language/ptb-wide", "language/enwik8"):
        for r in committed.load(RECORDS, name):
            if r.spec["purpose"] == "final" and (
                r.row.startswith(("adaxw@b2T", "adax@b2T")) or r.row == "adax"
            ):
                yield r.spec["options"]["betas"][1] * r.done["steps"]


def test_the_products_are_those_of_the_runs():
    ran = set(b2_steps())
    pairs = list(guide.pairs(RECORDS.parent))
    assert len(pairs) == 10
    for pair in pairs:
        n = 8 if "Penn" in pair.task else 17 if "CIFAR" in pair.task else 3
        assert len(pair.a) == len(pair.b) == n, pair.task
    named = {float(word) for pair in pairs for word in (pair.small, pair.large)}
    assert all(any(word == pytest.approx(one, rel=0.02) for one in ran) for word in named)
    assert all(any(word == pytest.approx(one, rel=0.02) for word in named) for one in ran)
