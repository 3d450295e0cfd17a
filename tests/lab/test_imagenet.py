"""The ImageNet task: crops, order, a run that is saved and resumed; see test_imagenet_runs.py."""

from __future__ import annotations

import io
import itertools
import types
from dataclasses import replace

import numpy as np
import pytest
import torch
from image_sets import OPTIONS, SMALL, resident, small
from PIL import Image

from adaxlab import spec, task
from adaxlab.data import order
from adaxlab.data.images import augment, cache
from adaxlab.data.images.loader import Loader, Mapped, Resident, hold_out
from adaxlab.distributed import Ranks
from adaxlab.errors import LabError
from adaxlab.execute import process
from adaxlab.imagenet.recipe import SCHEDULE, ImageNetRecipe
from adaxlab.imagenet.train import Training
from adaxlab.models.imagenet import seeded
from adaxlab.paper.imagenet import TINY
from adaxlab.settings import ExecutionConfig

CPU = torch.device("cpu")
ALONE = Ranks(CPU)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small(tmp_path_factory.mktemp("images") / "set")


@pytest.fixture
def data(folder):
    return resident(folder)


# -- crops ----------------------------------------------------------------------------------------------------------


def some_keys(n, seed=0):
    return order.keys([seed], 0, n, 2, CPU)[0]


@pytest.mark.parametrize(("side", "out"), [(64, 64), (80, 64), (32, 48)])
def test_a_crop_is_pillows(side, out):
    """Cut by numpy, resized and flipped by Pillow, whose bytes are rounded twice."""
    raw = np.random.default_rng(0).integers(0, 256, (24, side, side, 3), dtype=np.uint8)
    box, flip = augment.boxes(some_keys(24), side)
    span = augment.spans(some_keys(24), side)
    got = augment.resample(torch.from_numpy(raw).transpose(2, 3).double(), span, out)
    for image, (top, left, height, width), turned, ours in zip(raw, box.tolist(), flip, got, strict=True):
        cut = Image.fromarray(image[top : top + height, left : left + width])
        wanted = np.asarray(cut.resize((out, out), Image.Resampling.BILINEAR)).astype(float)
        wanted = wanted[:, ::-1] if turned else wanted
        assert np.abs(ours.permute(1, 2, 0).numpy() - wanted).max() < 1.1


def test_a_training_batch_is_the_crop_normalised(monkeypatch):
    """float32 and its order of operations beside float64's; crops do not depend on how many are drawn at once."""
    raw = torch.randint(
        0, 256, (24, 40, 40, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    span = augment.spans(some_keys(24), 40)
    wanted = augment.normalise(augment.resample(raw.transpose(2, 3).double(), span, 32))
    torch.testing.assert_close(augment.crop_batch(raw, span, 32).double(), wanted, rtol=0, atol=1e-4)
    assert (span[:, 0] >= 0).all()
    assert 0 < (span[:, 1, 1] < 0).sum() < 24
    monkeypatch.setattr(augment, "CHUNK", 7)
    assert torch.equal(augment.spans(some_keys(24), 40), span)


def test_crops_are_distributed_as_they_should_be():
    n, side = 20_000, 100
    box, flip = augment.boxes(some_keys(n), side)
    top, left, height, width = box.T.double()
    assert (height >= 1).all()
    assert ((top >= 0) & (left >= 0) & (top + height <= side) & (left + width <= side)).all()
    assert flip.double().mean().item() == pytest.approx(0.5, abs=0.015)
    area, ratio = height * width / side**2, width / height
    assert area.min() > 0.07
    assert area.max() > 0.97
    assert (ratio.log().abs() < np.log(4 / 3) + 0.06).all()
    assert ratio.log().mean().item() == pytest.approx(0.0, abs=0.01)
    # the mean area of torchvision's procedure, drawn here one by one
    rng = np.random.default_rng(1)
    areas = []
    for _ in range(20_000):
        for _ in range(10):
            a, r = rng.uniform(0.08, 1) * side**2, np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
            w, h = round((a * r) ** 0.5), round((a / r) ** 0.5)
            if 0 < w <= side and 0 < h <= side:
                break
        else:
            w = h = side
        areas.append(w * h / side**2)
    assert area.mean().item() == pytest.approx(np.mean(areas), abs=0.01)
    room = height < 60  # where it lies is uniform
    assert (top / (side - height))[room].mean().item() == pytest.approx(0.5, abs=0.02)


def test_normalisation_by_hand():
    raw = torch.full((1, 6, 6, 3), 128, dtype=torch.uint8)
    raw[0, 0, 0] = torch.tensor([255, 0, 7])
    middle = augment.center_crop_batch(raw, 4)
    assert middle.shape == (1, 3, 4, 4)
    assert middle[0, 1, 0, 0].item() == pytest.approx((128 / 255 - 0.456) / 0.224, abs=1e-6)
    corner = augment.center_crop_batch(raw, 6)[0, :, 0, 0]
    assert corner.tolist() == pytest.approx(
        [(1 - 0.485) / 0.229, -0.456 / 0.224, (7 / 255 - 0.406) / 0.225], abs=1e-5
    )


# -- order ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 3])
def test_every_image_once_and_the_same_order_for_any_number_of_processes(world, folder):
    part = cache.load(f"{folder}-16px").parts["train"]
    alone = [
        torch.cat((b.raw.flatten(1), b.span.flatten(1)), 1)
        for b in Loader(Resident.of(part, CPU)).epoch(3, 1, 5, 0, ALONE)
    ]
    assert [len(b) for b in alone] == [5, 5, 5, 3]
    shares = [
        [
            torch.cat((b.raw.flatten(1), b.span.flatten(1)), 1)
            for b in Loader(Mapped(part, CPU)).epoch(3, 1, 5, 0, Ranks(CPU, rank, world))
        ]
        for rank in range(world)
    ]
    for batch, *parts in zip(alone, *shares, strict=True):
        assert torch.equal(torch.cat(parts), batch)
    rows = torch.cat(alone)
    assert len(torch.unique(rows[:, :-4], dim=0)) == 18
    later = list(Loader(Resident.of(part, CPU)).epoch(3, 1, 5, 2, ALONE))
    assert torch.equal(later[0].raw.flatten(1), alone[2][:, :-4])
    other = next(Loader(Resident.of(part, CPU)).epoch(3, 2, 5, 0, ALONE))
    assert not torch.equal(other.raw.flatten(1), alone[0][:, :-4])


def test_a_last_batch_smaller_than_the_processes_is_refused(data):
    with pytest.raises(
        LabError, match="batch=17: the last batch of 18 images has 1, fewer than the 2 processes"
    ):
        next(data.train.epoch(0, 0, 17, 0, Ranks(CPU, 0, 2)))


def test_images_that_are_held_out_are_not_trained_on(data):
    rest, kept = hold_out(data.train, 5)
    assert (len(rest), len(kept)) == (13, 5)
    rows = [*rest.rows.tolist(), *kept.rows.tolist()]
    assert sorted(rows) == list(range(18))
    seen = torch.cat([b.raw for b in rest.epoch(0, 0, 4, 0, ALONE)])
    held = torch.cat([raw for raw, _ in kept.in_order(3, ALONE)])
    assert not (seen.flatten(1)[:, None] == held.flatten(1)[None]).all(2).any()


# -- one run --------------------------------------------------------------------------------------------------------


def a_run(row="adaxw", seed=0, epochs=2):
    chosen = TINY.row(row)
    return spec.make(
        study="s", task="imagenet", optimizer=chosen.method, options=chosen.options, seed=seed, epochs=epochs,
        batch_size=7, schedule=SCHEDULE,
    )  # fmt: skip


def training(data, recipe=SMALL, run=None, ranks=ALONE, **config):
    return Training(run or a_run(), recipe, *data, ranks, ExecutionConfig(**config))


def bits(trained):
    return [t.clone() for t in itertools.chain(trained.network.parameters(), trained.network.buffers())]


def curve(trained):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in trained.history]


def test_a_step_is_the_gradient_of_the_mean_loss_of_the_batch(data):
    """One step of SGD by hand: the first batch, its crops, the mean cross-entropy, the warmed-up lr."""
    mine = training(data, replace(SMALL, precision="fp64"), a_run("sgdm", 5))
    net = seeded(5, "resnet18", 3, stem="small", width=4).double()
    batch = next(data.train.epoch(5, 0, 7, 0, ALONE))
    assert torch.equal(batch.span, augment.spans(order.keys([5], 0, 18, 2, CPU)[0][:7], 16))
    x = augment.normalise(augment.resample(batch.raw.transpose(2, 3).double(), batch.span, 16))
    scores = net(x)
    loss = (torch.logsumexp(scores, 1) - scores[torch.arange(7), batch.labels]).mean()
    grads = torch.autograd.grad(loss, list(net.parameters()))
    steps = iter([False, True])
    assert not mine.advance(stop=lambda: next(steps, True) or True)
    warm = max(1, round(0.05 * 6))
    for p, g, got in zip(net.parameters(), grads, mine.network.parameters(), strict=True):
        expected = p - 0.1 / warm * (g + 1e-4 * p)
        torch.testing.assert_close(got, expected.detach(), rtol=1e-10, atol=1e-12)
    assert mine.sums[0].item() == pytest.approx(7 * loss.item(), rel=1e-12)


def test_top_1_by_hand(data):
    mine = training(data)
    mine.advance()
    net = mine.network.eval()
    right = 0
    for raw, label in zip(data.test.source.images, data.test.source.labels, strict=True):
        pixels = raw.double().numpy() / 255
        x = (pixels - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
        scores = net(torch.from_numpy(x).permute(2, 0, 1)[None].float())[0].tolist()
        right += scores.index(max(scores)) == int(label)
    assert mine.accuracy() == pytest.approx(right / 12)
    assert mine.history[-1]["metric"] == round(right / 12, 8)


@pytest.mark.parametrize("row", ["sgdm", "adaxw"])
def test_saved_and_resumed_at_every_step(row, data):
    whole = training(data, run=a_run(row))
    whole.advance()
    saved = io.BytesIO()
    done, sessions = False, 0
    while not done:
        part = training(data, run=a_run(row))
        if sessions:
            saved.seek(0)
            part.load(torch.load(saved, weights_only=True))
        done = part.advance(stop=lambda: True)
        sessions += 1
        saved = io.BytesIO()
        torch.save(part.state(), saved)
    assert sessions == 7  # six steps, and the end
    assert all(torch.equal(a, b) for a, b in zip(bits(part), bits(whole), strict=True))
    assert curve(part) == curve(whole)


def test_memory_format_and_where_images_lie_change_nothing_but_rounding(data, folder):
    found = cache.load(f"{folder}-16px")
    mapped = data._replace(
        train=Loader(Mapped(found.parts["train"], CPU)), test=Loader(Mapped(found.parts["val"], CPU))
    )
    wide, short = replace(SMALL, width=16, precision="fp64"), a_run(epochs=1)
    runs = [training(data), training(mapped)]
    runs += [training(data, wide, short, channels_last=last) for last in (True, False)]
    for one in runs:
        one.advance()
    assert all(torch.equal(a, b) for a, b in zip(bits(runs[0]), bits(runs[1]), strict=True))
    for a, b in zip(bits(runs[2]), bits(runs[3]), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)
    weights = [one.network.blocks[0].conv1.weight for one in runs]
    assert [w.is_contiguous(memory_format=torch.channels_last) for w in weights] == [
        False,
        False,
        True,
        False,
    ]


def test_a_graphs_inputs_are_the_batches(data, monkeypatch):
    """In the place of a graph, which a CPU has not, the step itself on the tensors that a graph would read."""

    def capture(self, batch):
        self._static = type(batch)(batch.raw.clone(), batch.labels.clone(), batch.span.clone(), batch.total)
        self._graph = types.SimpleNamespace(
            replay=lambda: replays.append(self.step) or self._compute(self._static)
        )

    plain, mine, replays = training(data), training(data), []
    monkeypatch.setattr(Training, "_capture", capture)
    mine.graph = True
    plain.advance(), mine.advance()
    assert replays == [4]  # of six steps, the first three are warm-up or too small, and so is the last
    assert all(torch.equal(a, b) for a, b in zip(bits(plain), bits(mine), strict=True))


def test_what_a_run_refuses(data):
    with pytest.raises(LabError, match="graph=True with 2 processes: a CUDA graph needs a single process"):
        training(data, ranks=Ranks(CPU, 0, 2), graph=True)
    with pytest.raises(LabError, match="images of 16 pixels; the recipe needs 64"):
        training(data, ImageNetRecipe())
    with pytest.raises(LabError, match="channels_last on a CPU with width=4: must be >= 16"):
        training(data, channels_last=True)
    with pytest.raises(
        LabError, match="groups=5: the last batch of 18 images has 4, fewer than the parts in 1"
    ):
        training(data, replace(SMALL, groups=5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 65}, "size=65: must be <= stored=64"),
        ({"width": 0}, "width=0: must be >= 1"),
        ({"precision": "fp8"}, "unknown precision 'fp8'; known are bf16"),
        ({"model": "vgg"}, "unknown model 'vgg'; known are resnet18, resnet50"),
        ({"holdout": 1.5}, "holdout=1.5: must be between 0 and 1"),
    ],
)
def test_wrong_recipes(options, message):
    with pytest.raises(LabError, match=message):
        ImageNetRecipe(**options)


def test_a_run_without_a_loss_has_diverged(data):
    mine = training(data)
    line = {"step": 6, "epoch": 2, "train_loss": 1.5, "train_metric": 0.5, "metric": 0.25}
    for loss, status, metric in ((1.5, "finished", 0.25), (None, "diverged", None)):
        mine.history = [{**line, "train_loss": loss}]
        done = mine.done()
        assert (done["status"], done["metric"]) == (status, metric)
    assert (done["images"], done["test_images"], done["classes"]) == (18, 12, 3)


# -- the task -------------------------------------------------------------------------------------------------------


def test_the_task_in_the_ordinary_loop(folder, tmp_path):
    options = {"data": str(folder), **OPTIONS}
    given = spec.make(
        study="images", task="imagenet", task_options=options, optimizer="adaxw", options={}, epochs=2,
        batch_size=6, seed=0, schedule=task.load("imagenet", options).schedule,
    )  # fmt: skip
    record = process.run(given, tmp_path)
    assert record.done["status"] == "finished"
    assert record.done["metric_name"] == "accuracy"
    assert record.done["steps"] == 6
    assert 0 <= record.done["metric"] <= 1
    assert record.env["data"] == cache.load(f"{folder}-16px").digest
    with pytest.raises(LabError, match="precision='fp64': must be bf16 or fp32"):
        task.load("imagenet", {**options, "precision": "fp64"}).model()


def test_bf16_autocast_on_a_cpu(data):
    """The loss of weights that do not move."""
    still = a_run("sgdm", epochs=1)
    still["options"] |= {"lr": 1e-30}
    low, exact = (training(data, replace(SMALL, precision=p), still) for p in ("bf16", "fp32"))
    low.advance(), exact.advance()
    assert low.history[0]["train_loss"] == pytest.approx(exact.history[0]["train_loss"], rel=0.05)
    assert low.history[0]["train_loss"] != exact.history[0]["train_loss"]
