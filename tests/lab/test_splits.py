"""The data of a run: which part is trained on, which is evaluated, and that all runs agree on the parts."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from adaxlab import randomness, splits, task
from adaxlab.errors import LabError

CPU = torch.device("cpu")


def made(**parts):
    """A task with these splits; the first column of a row is its number."""
    return SimpleNamespace(data=lambda: parts)


def numbered(first, n):
    return (torch.arange(first, first + n),)


def rows(source, order=None):
    order = torch.arange(source.n) if order is None else order
    return [int(x) for (batch,), _ in source.batches(order) for x in batch]


def sources(task, purpose, seed=0):
    with randomness.controlled(seed, CPU, 1):
        return splits.sources({"task": "mine", "batch_size": 4, "purpose": purpose}, task, CPU)


def test_final_runs_are_evaluated_on_test_also_if_there_is_a_valid_split():
    task = made(train=numbered(0, 10), valid=numbered(100, 4), test=numbered(200, 6))
    train, held, name = sources(task, "final")
    assert (rows(train), rows(held), name) == (list(range(10)), list(range(200, 206)), "test")
    train, held, name = sources(task, "tune")
    assert (rows(train), rows(held), name) == (list(range(10)), list(range(100, 104)), "valid")


def test_without_a_valid_split_tuning_holds_out_a_part_of_train():
    task = made(train=numbered(0, 10), test=numbered(200, 6))
    train, held, name = sources(task, "tune")
    assert sorted(rows(train) + rows(held)) == list(range(10))
    assert (len(rows(held)), name) == (2, "valid")


@pytest.mark.parametrize("draw", ["torch", "numpy", "python"])
def test_a_random_division_is_the_same_in_all_runs(draw):
    """Else final runs would be judged on examples that tuning runs were trained on."""

    def data():
        if draw == "torch":
            order = torch.randperm(30)
        elif draw == "numpy":
            order = torch.from_numpy(np.random.permutation(30))
        else:
            order = torch.tensor(random.sample(range(30), 30))
        return {"train": (order[:20],), "test": (order[20:],)}

    task = SimpleNamespace(data=data)
    test = set(rows(sources(task, "final", 0)[1]))
    assert test == set(rows(sources(task, "final", 7)[1])), "the test split depends on the seed of the run"
    train, held, _ = sources(task, "tune", 10_000)
    assert not test & {*rows(train), *rows(held)}


@pytest.mark.parametrize("place", ["constructor", "file"])
def test_data_made_in_the_constructor_or_the_file_are_the_same_in_all_runs(place, tmp_path):
    drawn = "ORDER = np.random.permutation(30), torch.randperm(30), random.sample(range(30), 30)\n"
    text = (
        f"import random, torch, numpy as np\n{drawn}class Mine:\n    metric, data, model, loss = 'm', len, len, len\n"
        "    higher_is_better = True\n    def __init__(self): self.order = "
    )
    seen = []
    for number in range(2):
        file = tmp_path / f"mine{number}.py"
        file.write_text(text + (drawn.partition("=")[2] if place == "constructor" else "ORDER"))
        seen.append([list(map(int, order)) for order in task.load(f"{file}:Mine").order])
    assert seen[0] == seen[1]
    before = torch.get_rng_state()
    task.load(f"{file}:Mine")
    assert torch.equal(before, torch.get_rng_state())


def test_the_file_the_constructor_and_the_data_draw_different_numbers(tmp_path):
    text = (
        "import torch\nHERE = torch.rand(3)\nclass Mine:\n    metric, model, loss = 'm', len, len\n"
        "    higher_is_better = True\n    def __init__(self): self.drawn = torch.rand(3)\n"
        "    def data(self):\n        self.third = torch.rand(3)\n"
        "        return {'train': (torch.rand(8, 2),), 'test': (torch.rand(4, 2),)}\n"
    )
    (tmp_path / "three.py").write_text(text)
    made = task.load(f"{tmp_path}/three.py:Mine")
    sources(made, "final")
    here = task.find(f"{tmp_path}/three.py:Mine").__init__.__globals__["HERE"]
    assert len({tuple(drawn.tolist()) for drawn in (here, made.drawn, made.third)}) == 3


def test_data_leave_the_generators_as_they_were():
    task = SimpleNamespace(data=lambda: {"train": (torch.randn(8, 2),), "test": (torch.randn(4, 2),)})
    with randomness.controlled(5, CPU, 1):
        splits.sources({"task": "mine", "batch_size": 4, "purpose": "final"}, task, CPU)
        after = torch.rand(1), np.random.rand(), random.random()
    with randomness.controlled(5, CPU, 1):
        assert after == (torch.rand(1), np.random.rand(), random.random())


def test_one_example_cannot_be_divided():
    with pytest.raises(LabError, match=r"data\(\)\['train'\] has 1 example, and a fifth is held out"):
        sources(made(train=numbered(0, 1), test=numbered(0, 1)), "tune")
