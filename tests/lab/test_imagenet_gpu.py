"""What only a GPU can show of the ImageNet task: the CUDA graph, the crops, reading ahead."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from image_sets import make, tiny

from adaxlab import driver, spec
from adaxlab.data import order
from adaxlab.data.images import augment, cache
from adaxlab.data.images.loader import Loader, Mapped, Resident
from adaxlab.distributed import Ranks
from adaxlab.imagenet.recipe import SCHEDULE, ImageNetRecipe
from adaxlab.imagenet.train import Training
from adaxlab.paper.imagenet import TINY
from adaxlab.settings import ExecutionConfig, Settings
from adaxlab.tasks.imagenet import ImageNet
from adaxlab.variants import changed

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings(
        "ignore:Please use the new API settings"
    ),  # torch 2.9 to 2.11, of its TF32 flags
]
RECIPE = ImageNetRecipe(size=16, stored=16, width=16)
SIZES = {"size": 16, "stored": 16, "width": 16}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    place = tmp_path_factory.mktemp("images") / "set"
    tiny(place, make(train=30, val=4))
    return cache.obtain(place, 16, workers=1)


def small_study(found, **changes):
    return changed(TINY, seeds=1, epochs=2, batch_size=16, data=str(found.root), **SIZES, **changes)


def loaders(found, device, kind=Resident.of):
    return [Loader(kind(found.parts[split], device)) for split in ("train", "val")]


@pytest.fixture(autouse=True)
def _captured_early(monkeypatch):
    """One step before the graph is captured, so that an epoch of six has both."""
    monkeypatch.setattr("adaxlab.imagenet.train.WARM", 1)


def trained(found, row, graph, kind=Resident.of, precision="fp64", cut=None, part=0.1):
    """An epoch at `part` of the lr, in float64: float32's last digits differ and are magnified within an epoch."""
    device = torch.device("cuda:0")
    data = loaders(found, device, kind)
    chosen = TINY.row(row)
    options = {**chosen.options, "lr": max(chosen.options["lr"] * part, 1e-30)}
    run = spec.make(
        study="s", task="imagenet", optimizer=chosen.method, options=options, seed=0, epochs=1, batch_size=16,
        schedule=SCHEDULE,
    )  # fmt: skip
    recipe = replace(RECIPE, precision=precision)

    def fresh():
        return Training(run, recipe, *data, 3, Ranks(device), ExecutionConfig(graph=graph))

    mine = fresh()
    if cut:
        seen = []
        assert not mine.advance(stop=lambda: seen.append(0) or len(seen) >= cut)
        state = mine.state()
        mine = fresh()
        mine.load(state)
    assert mine.advance()
    return mine


def same(a, b):
    """Every number of the epoch, and the weights after it."""
    assert a.step == b.step == 6
    for one, other in zip(a.history, b.history, strict=True):
        assert {**one, "seconds": 0} == pytest.approx({**other, "seconds": 0}, abs=2e-6)
    for p, q in zip(a.network.parameters(), b.network.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("row", [row.name for row in TINY.rows])
def test_a_graph_trains_as_steps_do(row, found):
    plain, graph = (trained(found, row, g) for g in (False, True))
    assert graph._graph is not None
    assert plain._graph is None
    same(plain, graph)


def test_a_graph_is_captured_while_images_are_read_ahead(found):
    resident, mapped = (trained(found, "adaxw", True, kind) for kind in (Resident.of, Mapped))
    assert mapped._graph is not None
    same(resident, mapped)


def test_a_graph_goes_on_from_a_checkpoint(found, monkeypatch):
    monkeypatch.setattr("adaxlab.imagenet.train.CHECK_STEPS", 1)
    whole, cut = trained(found, "adaxw", True), trained(found, "adaxw", True, cut=2)
    assert cut._graph is not None
    same(whole, cut)


@pytest.mark.parametrize(("precision", "near"), [("bf16", 2e-2), ("tf32", 5e-3)])
def test_other_precisions_are_near(precision, near, found):
    """Of weights that do not move: the loss of every batch, forward and by the graph."""
    exact, low = (trained(found, "sgdm", True, precision=p, part=0.0) for p in ("fp32", precision))
    assert low.history[0]["train_loss"] == pytest.approx(exact.history[0]["train_loss"], rel=near)
    assert low.history[0]["train_loss"] != exact.history[0]["train_loss"]


def test_reading_ahead_gives_the_same_batches(found):
    device = torch.device("cuda:0")
    a, b = (loaders(found, device, kind)[0] for kind in (Resident.of, Mapped))
    for x, y in zip(a.epoch(0, 0, 16, 0, Ranks(device)), b.epoch(0, 0, 16, 0, Ranks(device)), strict=True):
        assert torch.equal(x.raw, y.raw)
        assert torch.equal(x.labels, y.labels)


def test_crops_are_those_of_a_cpu():
    raw = torch.randint(0, 256, (32, 64, 64, 3), dtype=torch.uint8)
    keys = order.keys([0], 0, 32, 2, torch.device("cpu"))[0]
    boxes = [augment.boxes(k, 64) for k in (keys, keys.cuda())]
    assert all(torch.equal(a, b.cpu()) for a, b in zip(*boxes, strict=True))
    span = augment.spans(keys, 64)
    here, there = augment.crop_batch(raw, span, 64), augment.crop_batch(raw.cuda(), span.cuda(), 64)
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)


def test_a_study_on_a_gpu_stopped_and_resumed(found, tmp_path, monkeypatch):
    """By the executor, from the graph's first steps to the record; the checkpoint is used."""
    monkeypatch.setattr("adaxlab.imagenet.train.CHECK_STEPS", 1)
    study = small_study(found, precision="bf16")
    settings = Settings("cuda", checkpoint_seconds=0.0)
    assert driver.carry_out(study, tmp_path, settings, seconds=0.05) is None
    runs = driver.carry_out(study, tmp_path, settings)
    assert [run.row for run in runs] == [row.name for row in TINY.rows]
    for run in runs:
        assert [line["step"] for line in run.metrics] == [6, 12]
        assert (run.done["graph"], run.done["layout"], run.done["processes"]) == (True, "channels_last", 1)
    assert not list(tmp_path.rglob("checkpoint.pt"))


def test_speed_has_a_row_for_the_graph(found):
    place = Path(__file__).parents[2] / "benchmarks" / "imagenet.py"
    given = importlib.util.spec_from_file_location("benchmark_imagenet", place)
    speed = sys.modules["benchmark_imagenet"] = importlib.util.module_from_spec(given)
    given.loader.exec_module(speed)
    study, device = small_study(found), torch.device("cuda:0")
    specs = [study.spec(row, row.lr(), seed=0, purpose="final") for row in study.rows]
    task = ImageNet(**study.task_options)
    made = speed.measure(task, specs, Ranks(device), ExecutionConfig(), batches=3)
    assert [len(ms) for ms in made["in_turn"]["ms"].values()] == [speed.ROUNDS] * 5
    assert [r["what"] for r in made["rows"]][-2:] == ["training", "training, CUDA graph"]
