"""The whole of `adax compare` against itself: tuning, final runs and verdict of one method on independent seeds."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from adaxlab import compare
from adaxlab.study import Study, Tuning

HERE = Path(__file__).parents[2] / "benchmarks" / "fairness.py"
TINY = str(Path(__file__).with_name("tiny.py"))


@pytest.fixture(scope="module")
def fairness():
    spec = importlib.util.spec_from_file_location("fairness", HERE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_method_is_not_better_than_itself(fairness, tmp_path):
    made = list(fairness.against_itself(f"{TINY}:Tiny", 6, tmp_path, trials=2, epochs=1))
    for result in made:
        first, second = result.rows
        assert (first.n, second.n, len(first.scores)) == (5, 5, 2)
        ours, theirs = ({r.path.name for r in row.runs} for row in result.rows)
        assert not ours & theirs  # no run is on both sides
    assert sum(result.rows[1].verdict.outcome in ("better", "worse") for result in made) <= 2  # 0.3 expected


LINE = """
import torch

class Line:
    metric, higher_is_better, epochs, batch_size = "loss", False, 2, 8

    def data(self):
        x = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
        return {"train": (x[:64], x[:64].sum(1)), "test": (x[64:], x[64:].sum(1))}

    def model(self):
        return torch.nn.Linear(4, 1)

    def loss(self, model, batch):
        return (model(batch[0]).squeeze(1) - batch[1]).square().mean()
"""


def test_a_verdict_that_rests_on_the_learning_rate_is_found_out(fairness, tmp_path):
    """SGDM and SGDM under another name are the same method: what one is at a better lr, it is not at the same."""
    rows = compare.rows(("sgdm", "sgdm@slow"), {"sgdm": {"lr": 0.03}, "sgdm@slow": {"lr": 1e-4}})
    (tmp_path / "line.py").write_text(LINE)
    study = Study(f"{tmp_path / 'line.py'}:Line", rows, "unfair", seeds=5, baseline="sgdm").complete()
    result = compare.compare(study, tmp_path)
    assert result.row("sgdm@slow").verdict.outcome == "worse"
    found = list(fairness.at_equal_rates(study, result, tmp_path))
    assert [(row, lr, after.word) for row, lr, _, after in found] == [
        ("sgdm@slow", 0.03, "inconclusive"),
        ("sgdm@slow", 1e-4, "inconclusive"),
    ]
    again, _ = fairness.stored(tmp_path / "unfair")
    assert again == study


def test_tuning_is_part_of_what_is_repeated(fairness, tmp_path):
    [one] = fairness.against_itself(f"{TINY}:Tiny", 1, tmp_path, trials=2, epochs=1)
    assert one.study.tuning == Tuning(2, first_seed=1_001_000)
