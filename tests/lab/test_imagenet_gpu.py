"""What only a GPU can show of the ImageNet task: the CUDA graph, the crops, reading ahead."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from picture_sets import make, tiny

from adaxopt.lab.cifar import order
from adaxopt.lab.imagenet import augment, book, cache, drive, speed
from adaxopt.lab.imagenet.feed import Feed, Mapped, Resident
from adaxopt.lab.imagenet.ranks import Ranks
from adaxopt.lab.imagenet.recipe import Recipe
from adaxopt.lab.imagenet.train import Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings(
        "ignore:Please use the new API settings"
    ),  # torch 2.9 to 2.11, of its TF32 flags
]
RECIPE = Recipe(epochs=1, batch=16, size=16, stored=16, width=16)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    place = tmp_path_factory.mktemp("pictures") / "set"
    tiny(place, make(train=30, val=4))
    return cache.obtain(place, 16, workers=1)


def feeds(found, device, kind=Resident.of):
    train, test = (Feed(kind(found.parts[split], device)) for split in ("train", "val"))
    return drive.Data(train, test, 3, found.digest)


@pytest.fixture(autouse=True)
def _captured_early(monkeypatch):
    """One step before the graph is captured, so that an epoch of six has both."""
    monkeypatch.setattr("adaxopt.lab.imagenet.train.WARM", 1)


def trained(found, row, graph, kind=Resident.of, precision="fp64", cut=None, part=0.1):
    """An epoch at `part` of the lr, in float64: float32's last digits differ and are magnified within an epoch."""
    device = torch.device("cuda:0")
    data = feeds(found, device, kind)
    chosen = next(r for r in book.TINY.rows if r.name == row)
    options = {**chosen.options, "lr": chosen.options["lr"] * part}
    run = book.Run(chosen.name, chosen.optimizer, options, 0)

    def fresh():
        return Training(
            run, RECIPE, data.train, data.test, 3, Ranks(device), precision=precision, graph=graph
        )

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
        assert one == pytest.approx(other, abs=2e-6)
    for p, q in zip(a.network.parameters(), b.network.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("row", [row.name for row in book.TINY.rows])
def test_a_graph_trains_as_steps_do(row, found):
    plain, graph = (trained(found, row, g) for g in (False, True))
    assert graph._graph is not None
    assert plain._graph is None
    same(plain, graph)


def test_a_graph_is_captured_while_pictures_are_read_ahead(found):
    resident, mapped = (trained(found, "adaxw", True, kind) for kind in (Resident.of, Mapped))
    assert mapped._graph is not None
    same(resident, mapped)


def test_a_graph_goes_on_from_a_checkpoint(found, monkeypatch):
    monkeypatch.setattr("adaxopt.lab.imagenet.train.LOOK", 1)
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
    a, b = (feeds(found, device, kind).train for kind in (Resident.of, Mapped))
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


def test_speed_has_a_row_for_the_graph(found):
    device = torch.device("cuda:0")
    recipe = replace(RECIPE, epochs=1)
    runs = book.TINY.runs()[:5]
    made = speed.measure(feeds(found, device), recipe, Ranks(device), drive.How(), batches=3, runs=runs)
    assert [len(ms) for ms in made["in_turn"]["ms"].values()] == [speed.ROUNDS] * 5
    assert [r["what"] for r in made["rows"]][-2:] == ["training", "training, CUDA graph"]
