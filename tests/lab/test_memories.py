"""The guide's table of memories, from records made by hand."""

from __future__ import annotations

import json

import pytest

from adaxopt.lab import memories


@pytest.mark.parametrize(
    ("long", "said"),
    [
        ((51.0, 61.1, 70.9), "+1.00 (+0.75 to +1.25) points | longer |"),
        ((49.0, 59.1, 68.9), "-1.00 (-1.25 to -0.75) points | shorter |"),
        ((49.0, 61.0, 70.0), "+0.00 (-2.48 to +2.48) points | not told apart |"),
    ],
)
def test_two_memories_on_the_same_seeds(tmp_path, long, said):
    assert memories.table(tmp_path).startswith("*Not run yet")
    lines = [
        {"row": row, "seed": seed, "test_accuracy": value}
        for row, values in (("adaxw", (50.0, 60.0, 70.0)), ("adaxw-b2T50", long), ("adamw", (1.0, 2.0, 3.0)))
        for seed, value in enumerate(values)
    ]
    (tmp_path / "imagenet").mkdir()
    text = "".join(json.dumps(line) + "\n" for line in [*lines, {**lines[0], "seed": 9}])
    (tmp_path / "imagenet" / "tuned.jsonl").write_text(text)
    found = memories.table(tmp_path).splitlines()
    assert found[2] == f"| [Tiny-ImageNet](imagenet.md), ResNet-18, each its lr | 0.78 | 50 | 3 | {said}"
    assert len(found) == 3


def test_of_losses_the_lower_is_better(tmp_path):
    def row(name, *ends):
        return {
            "optimizer": name,
            "curves": {str(seed): [[1, 9.0, 9.0], [2, 8.0, end]] for seed, end in enumerate(ends)},
        }

    rows = [row("adax@b2T=3", 4.0, 4.1, 4.2), row("adax", 4.2, 4.31, 4.39)]
    rows[0]["curves"]["3"] = None  # diverged
    (tmp_path / "language").mkdir()
    (tmp_path / "language" / "ptb.json").write_text(json.dumps({"rows": rows}))
    assert "| 3 | 35 | 3 | -0.200 (-0.225 to -0.175) nats | shorter |" in memories.table(tmp_path)
