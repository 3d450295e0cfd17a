"""CIFAR-10's studies as data, the committed runs they ask for, and the task."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from cifar_sets import binary, make

from adaxlab import driver, records, spec, study
from adaxlab.data import cifar10
from adaxlab.data.order import held_out
from adaxlab.errors import LabError
from adaxlab.optimizers import build
from adaxlab.paper.cifar10 import DECAY, FRESH, STUDIES, TABLE2, TUNED, TUNING, ZOO
from adaxlab.stacked.loader import Images
from adaxlab.stacked.stack import Run, Stack, StackRecipe
from adaxlab.tasks.cifar10 import Cifar10, crop_and_flip, normalise

RECORDS = Path(__file__).parents[2] / "records"
CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "set"
    place.mkdir()
    binary(place, make(train=20, test=10))
    return str(place)


@pytest.fixture
def real(monkeypatch):
    """The published images' digest and number of batches, without the images."""
    monkeypatch.setattr(study, "_data_digest", lambda *given: cifar10.DIGEST)
    monkeypatch.setattr(
        study, "_epoch_steps", lambda task, options, *given: 352 if "holdout" in options else 391
    )


# -- the studies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", STUDIES, ids=lambda s: s.name)
def test_every_row_can_be_built(given):
    assert given.title.endswith("?")
    for row in given.rows:
        p = torch.nn.Parameter(torch.ones(3))
        p.grad = torch.ones(3)
        assert "lr" in row.options or row.rates
        build(row.method, [p], row.at(row.rates[0] if row.rates else row.lr(), 70_000)).step()
        assert torch.isfinite(p).all()


def test_the_main_table_is_the_recipe(real):
    assert TABLE2.seeds >= 5
    settings = {row.name: (row.options["lr"], row.options["weight_decay"]) for row in TABLE2.rows}
    assert settings == {
        "sgdm-5e-4": (0.1, 5e-4),
        "sgdm-1e-4": (0.1, 1e-4),
        "adamw": (1e-3, 0.1),
        "amsgradw": (1e-3, 0.1),
        "adaxw": (5e-3, 5e-2),
    }
    one = TABLE2.finals(TABLE2.rows[0], 0.1)[0]
    assert (one["epochs"], one["batch_size"]) == (182, 128)
    assert one["task_options"] == {"model": "resnet20", "precision": "bf16"}


def asked(given):
    """Every specification of a study, the learning rates of one that follows from the committed tuning."""
    if given.tuning:
        return [s for row in given.rows for i, lr in enumerate(row.rates) for s in given.trials(row, lr, i)]
    before = [other for other in STUDIES if other.name == given.follows]
    rates = driver.rates_of(before[0], records.load(RECORDS, before[0].name)) if before else {}
    return [s for row in given.rows for s in given.finals(row, rates.get(row.name, row.lr()))]


@pytest.mark.parametrize("given", [s for s in STUDIES if records.load(RECORDS, s.name)], ids=lambda s: s.name)
def test_the_committed_runs_are_those_that_the_study_asks_for(given, real):
    """Every record has the name that the study gives to its run, so that nothing is run twice."""
    wanted = {spec.digest(s): s for s in asked(given)}
    runs = records.load(RECORDS, given.name)
    assert {r.name: r.spec for r in runs} == {r.name: wanted[r.name] for r in runs}
    made = {other.name: {r.name for r in records.load(RECORDS, other.name)} for other in STUDIES}
    for r in runs:  # a run that was made for another study is that study's
        assert "made_for" not in r.env or r.name in made[r.env["made_for"]]


def test_tuned_rates_are_the_best_of_the_record():
    runs = records.load(RECORDS, TUNING.name)
    best = driver.rates_of(TUNING, runs)
    assert best == {"sgdm": 0.1, "adamw": 3e-3, "amsgradw": 3e-3, "adaxw": 5e-3}
    assert {r.spec["task_options"]["holdout"] for r in runs} == {4944}
    assert {r.done["steps"] for r in runs} == {182 * 352}


def test_fresh_seeds_are_fresh(real):
    used = {
        r.spec["seed"] for given in STUDIES if given is not FRESH for r in records.load(RECORDS, given.name)
    }
    assert not used & {s["seed"] for s in asked(FRESH)}
    assert (FRESH.rows, FRESH.follows, len(asked(FRESH))) == (TUNED.rows, "cifar10/tuning", 40)


def test_every_row_of_the_zoo_trains_in_a_stack():
    """One step of each distinct row on two images."""
    x, y, _, _ = make(10, 10)
    train = Images.of(x[:2], y[:2], CPU)
    runs = [Run(row.name, row.method, row.options, 0) for row in (*ZOO.rows, *DECAY.rows)]
    stack = Stack(runs, train, train, StackRecipe(epochs=1, batch=2))
    before = stack.network.parameters.clone()
    stack.run_epoch()
    moved = (stack.network.parameters - before).abs().amax(1)
    still = [run.row for run, by in zip(stack.runs, moved, strict=True) if by == 0]
    assert still == ["adashift"]  # which waits until its window is full
    assert torch.isfinite(stack.network.parameters).all()


def test_a_network_without_fused_kernels_trains_in_a_stack():
    x, y, tx, ty = make(5, 5)
    train, test = Images.of(x, y, CPU), Images.of(tx, ty, CPU)
    some = [Run("adax", "adax", {"lr": 1.5e-3, "weight_decay": 5e-4}, 0)]
    stack = Stack(some, train, test, StackRecipe(model="resnet18", epochs=1, batch=5))
    before = stack.network.parameters.clone()
    stack.run_epoch()
    moved = (stack.network.parameters - before).abs()
    assert (moved > 0).float().mean() > 0.99
    assert moved.max() < 1.5e-3 * 1.001 * 0.1  # the first step of AdaX is lr*(1-b1) at most


# -- the task -------------------------------------------------------------------------------------------------------


def test_task_reads_and_learns(folder):
    task = Cifar10(data=folder)
    x, y = task.data()["train"]
    assert x.dtype == torch.uint8
    assert x.shape == (20, 32, 32, 3)
    net = task.model()
    optimizer = build("adaxw", net.parameters(), {"lr": 5e-3})
    first = None
    for _ in range(6):
        optimizer.zero_grad()
        loss, right = task.loss(net, (x, y))
        assert right.shape == (20,)
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    assert loss.item() < 0.8 * first


def test_held_out_images_are_not_trained_on(folder):
    rest, kept = held_out(50, 14, CPU)
    assert (len(rest), len(kept)) == (36, 14)
    assert sorted([*rest.tolist(), *kept.tolist()]) == list(range(50))
    data = Cifar10(data=folder, holdout=6).data()
    assert {part: len(labels) for part, (_, labels) in data.items()} == {"train": 14, "valid": 6, "test": 10}
    with pytest.raises(LabError, match="holdout=50: must be between 1 and 49"):
        held_out(50, 50, CPU)


def test_the_images_have_one_digest_wherever_they_lie(folder, tmp_path):
    assert Cifar10(data=folder).digest() == cifar10.load(folder).digest() != cifar10.DIGEST


def test_task_crops_are_crops():
    images = torch.from_numpy(make(40, 10)[0])
    out = crop_and_flip(images)
    seen = set()
    for image, got in zip(images.numpy(), out.numpy(), strict=True):
        padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
        every = {
            (dy, dx, flip): padded[dy : dy + 32, dx : dx + 32][:, :: -1 if flip else 1]
            for dy in range(9)
            for dx in range(9)
            for flip in (0, 1)
        }
        matches = [key for key, crop in every.items() if np.array_equal(crop, got)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 20
    assert {key[2] for key in seen} == {0, 1}


def test_task_normalises_and_schedules():
    task = Cifar10()
    x = torch.full((1, 32, 32, 3), 255, dtype=torch.uint8)
    white = [(1 - 0.4914) / 0.2023, (1 - 0.4822) / 0.1994, (1 - 0.4465) / 0.2010]
    np.testing.assert_allclose(normalise(x)[0, :, 0, 0], white, rtol=1e-6)
    from adaxlab.schedule import factor

    f = factor(task.schedule, task.epochs * 391)
    assert [f(e * 391) for e in (0, 99, 100, 149, 150)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert f(100 * 391 - 1) == 1
    for options in ({"model": "vgg"}, {"precision": "fp8"}):
        with pytest.raises(LabError, match="unknown"):
            Cifar10(**options)
    with pytest.raises(LabError, match="trace and precision=tf32 need the executor `stack`"):
        Cifar10(trace=True).model()


def test_task_without_data_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAX_DATA", str(tmp_path))
    with pytest.raises(LabError, match=r"adax data get cifar10.*--data names its folder"):
        Cifar10().data()
