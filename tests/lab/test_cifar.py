"""Stacks of runs: order, crops, gradients, resuming, and that the plain loop learns. Oracles are written out slowly."""

from __future__ import annotations

import functools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cifar_sets import Float64, binary, make

from adaxlab.data import cifar10, order
from adaxlab.models import make as make_net
from adaxlab.optimizers import build
from adaxlab.paper.cifar10 import DECAY, TABLE2, ZOO
from adaxlab.stacked.loader import MEAN, STD, Images, StackLoader
from adaxlab.stacked.plain import PlainNetwork
from adaxlab.stacked.stack import Run, Stack, StackRecipe

CPU = torch.device("cpu")
ADAXW = ("adaxw", {"lr": 5e-3, "weight_decay": 5e-2, "wake": False})
ROWS = {
    "adaxw": ADAXW,
    "sgdm": ("torch:SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4}),
    "amsgradw": ("torch:AdamW", {"lr": 1e-3, "weight_decay": 0.1, "amsgrad": True}),
}


def images(n, test=10, seed=0):
    x, y, tx, ty = make(n, test, seed)
    return Images.of(x, y, CPU), Images.of(tx, ty, CPU)


def runs(*rows, seeds=(0,)):
    return [Run(name, *ROWS[name], seed) for name in rows for seed in seeds]


def first_runs(study):
    """Every row of a study, with seed 0."""
    return [Run(row.name, row.method, row.options, 0) for row in study.rows]


# -- order and crops --------------------------------------------------------------------------------------------------


def splitmix(x):
    """Steele, Lea and Flood's finaliser in Python's unbounded integers."""
    mask = 2**64 - 1
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def test_mixing_is_splitmix64():
    given = [0, 1, 2**63, 2**64 - 1, 0x123456789ABCDEF0]
    signed = torch.tensor([g - 2**64 if g >= 2**63 else g for g in given])
    assert [int(v) % 2**64 for v in order.mix(signed)] == [splitmix(g) for g in given]


def test_orders_are_permutations_of_their_own():
    n = 1000
    every = [tuple(row.tolist()) for e in range(3) for row in order.permutations([0, 1, 2], e, n, CPU)]
    assert all(sorted(row) == list(range(n)) for row in every)
    assert len(set(every)) == 9
    assert torch.equal(order.permutations([2], 1, n, CPU)[0], order.permutations([0, 1, 2], 1, n, CPU)[2])


def test_orders_are_even():
    """Each image is as likely to come early as late: mean position over many orders, within 4 standard errors."""
    n, draws = 20, 2000
    places = torch.argsort(order.permutations(list(range(draws)), 0, n, CPU).long(), dim=1).double()
    sigma = ((n * n - 1) / 12 / draws) ** 0.5
    assert (places.mean(0) - (n - 1) / 2).abs().max() < 4 * sigma


def test_crops_are_even_and_apart_from_the_order():
    codes = order.crops([7], 3, 162 * 400, CPU)[0]
    counts = torch.bincount(codes, minlength=order.CROPS).double()
    assert len(counts) == order.CROPS
    chi = ((counts - 400) ** 2 / 400).sum().item()
    assert 161 - 4 * 18 < chi < 161 + 4 * 18  # chi-squared of 161 degrees: deviation 18
    assert not torch.equal(codes, order.crops([7], 4, 162 * 400, CPU)[0])


def test_a_batch_image_by_image():
    """Pad by 4 black pixels, cut, flip, scale to [0, 1], normalise: as a data loader would, pixel by pixel."""
    x, y, _, _ = make(30, 10)
    loader = StackLoader(Images.of(x, y, CPU), [5, 6])
    loader.start(2)
    loader.cursor.fill_(8)
    got, labels = loader.batch(1, 6)
    source = order.permutations([6], 2, 30, CPU)[0][8:14].tolist()
    codes = order.crops([6], 2, 30, CPU)[0][8:14].tolist()
    assert len({c // 81 for c in codes}) == 2
    for i, (s, code) in enumerate(zip(source, codes, strict=True)):
        dy, dx, flip = code % 9, code // 9 % 9, code // 81
        padded = np.zeros((40, 40, 3), np.uint8)
        padded[4:36, 4:36] = x[s]
        cut = padded[dy : dy + 32, dx : dx + 32]
        cut = cut[:, ::-1] if flip else cut
        expected = (cut / 255.0 - np.array(MEAN)) / np.array(STD)
        np.testing.assert_allclose(got[i].numpy(), expected.transpose(2, 0, 1), atol=2e-6)
        assert labels[i] == y[s]


# -- a stack is its runs ----------------------------------------------------------------------------------------------


def plain_loop(run, train, test, recipe):
    """One run as anybody would write it: a module, its parameters in an optimizer, one batch after the other."""
    net = make_net(recipe.model, run.seed).double()
    optimizer = build(run.optimizer, net.parameters(), run.options)
    loader = StackLoader(train, [run.seed])
    curve = []
    for epoch in range(recipe.epochs):
        for group in optimizer.param_groups:
            group["lr"] = run.options["lr"] * recipe.gamma ** sum(epoch >= m for m in recipe.milestones)
        loader.start(epoch)
        net.train()
        total = right = 0.0
        for start in range(0, len(train), recipe.batch):
            count = min(recipe.batch, len(train) - start)
            x, y = loader.batch(0, count)
            loader.cursor.add_(count)
            optimizer.zero_grad()
            logits = net(x.double())
            loss = F.cross_entropy(logits, y)
            loss.backward()
            optimizer.step()
            total += loss.item() * count
            right += (logits.argmax(1) == y).sum().item()
        net.eval()
        with torch.no_grad():
            tested = (net(loader.normalise(test.images).double()).argmax(1) == test.labels).sum().item()
        curve.append((total / len(train), right / len(train), tested / len(test)))
    return net, curve


@pytest.mark.parametrize(
    "recipe",
    [StackRecipe(epochs=1, batch=16), StackRecipe(epochs=2, milestones=(1,), batch=20)],
    ids=["short last batch", "lr drop"],
)
def test_a_stack_is_the_plain_loop(recipe):
    """Two steps in float64, three methods and two seeds at once."""
    train, test = images(20)
    stack = Stack(
        runs(*ROWS, seeds=(3,)) + runs("adaxw", seeds=(4,)), train, test, recipe, make_network=Float64
    )
    for _ in range(recipe.epochs):
        stack.run_epoch()
    for i, run in enumerate(stack.runs):
        net, curve = plain_loop(run, train, test, recipe)
        for point, (loss, accuracy, tested) in zip(stack.history[i], curve, strict=True):
            assert point["train_loss"] == pytest.approx(loss, abs=1e-6)  # rounded to six digits
            assert point["train_metric"] == pytest.approx(accuracy)
            assert point["metric"] == pytest.approx(tested)
        weights = stack.network.layout.unpack(stack.network.parameters[i])
        for name, p in net.named_parameters():
            assert (weights[name] - p.detach()).norm() <= 1e-5 * p.norm()  # a g near 0 leaves g/sqrt(v) open


def test_a_run_does_not_depend_on_its_company():
    train, test = images(20)
    recipe = StackRecipe(epochs=1, batch=16)
    alone = Stack(runs("adaxw", seeds=(1,)), train, test, recipe, make_network=Float64)
    company = runs("sgdm") + runs("adaxw", seeds=(0, 1))
    together = Stack(company, train, test, recipe, make_network=Float64)
    for stack in (alone, together):
        stack.run_epoch()
    one, other = alone.network.parameters[0], together.network.parameters[2]
    assert (one - other).norm() <= 1e-5 * other.norm()
    assert alone.history[0][0] == pytest.approx(together.history[2][0], abs=2e-6)


def test_cut_and_resumed_there_is_no_seam(tmp_path):
    train, test = images(20)
    recipe = StackRecipe(epochs=3, milestones=(1, 2), batch=16)
    some = runs(*ROWS)
    whole = Stack(some, train, test, recipe)
    for _ in range(3):
        whole.run_epoch()
    first = Stack(some, train, test, recipe)
    first.run_epoch()
    torch.save(first.state(), tmp_path / "kept")
    second = Stack(some, *images(20), recipe)
    second.load(torch.load(tmp_path / "kept", weights_only=True))
    for _ in range(2):
        second.run_epoch()
    assert second.history == whole.history
    assert torch.equal(second.network.parameters, whole.network.parameters)
    assert torch.equal(second.network.running, whole.network.running)


def test_a_checkpoint_of_other_runs_is_refused():
    train, test = images(20)
    one = Stack(runs("adaxw"), train, test, StackRecipe(epochs=1))
    other = Stack(runs("sgdm"), train, test, StackRecipe(epochs=1))
    with pytest.raises(ValueError, match="checkpoint of other runs"):
        other.load(one.state())


def test_resnet20_learns_from_files_of_the_real_layout(tmp_path):
    """The plain loop on a CPU: 200 steps of the real ResNet-20 on a generated set, read as CIFAR-10 is read."""
    binary(tmp_path, make(train=200, test=50))
    data = cifar10.load(tmp_path)
    train = Images.of(data.train_images, data.train_labels, CPU)
    test = Images.of(data.test_images, data.test_labels, CPU)
    stack = Stack(runs("adaxw"), train, test, StackRecipe(epochs=8, milestones=(6,), batch=8))
    assert sum(p.numel() for p in make_net("resnet20", 0).parameters()) == 269_722
    for _ in range(8):
        stack.run_epoch()
    curve = stack.history[0]
    assert curve[-1]["train_loss"] < 0.5 * curve[0]["train_loss"]
    assert curve[-1]["metric"] >= 0.8


def test_trace_is_the_second_moments_and_the_weights_size():
    train, test = images(20)
    some = [Run("adamw", "torch:AdamW", {"lr": 1e-3, "weight_decay": 0.1}, 0), Run("adaxw", *ADAXW, 0)]
    stack = Stack(some, train, test, StackRecipe(epochs=2, batch=10), trace=[True, True])
    for _ in range(2):
        stack.run_epoch()
    for i, optimizer in enumerate(stack.optimizers):
        (state,) = optimizer.state.values()
        v = state["exp_avg_sq"][0].double()
        if i == 0:
            v = v / (1 - 0.999**4)
        trace = stack.traces.of(i)
        assert trace["iteration"] == [1, 2, 3, 4]
        assert trace["value"][-1] == pytest.approx(v.sqrt().sum().item() / 269_722, rel=1e-5)
        assert trace["mean_v"][-1] == pytest.approx(v.sum().item() / 269_722, rel=1e-5)
        norm = stack.network.parameters[i].double().square().sum().sqrt().item()
        assert trace["weights"][-1] == pytest.approx(norm, rel=1e-5)
        assert all(len(values) == 4 for values in trace.values())


# -- the fused kernels ------------------------------------------------------------------------------------------------


def compare(device, dtype, precision, count, tiles, slots, depth=8):
    """(relative error of the gradients, of running statistics, losses, right answers) of fused against plain."""
    from adaxlab.models import resnet20
    from adaxlab.stacked.fused import FusedNetwork

    def nets():
        torch.manual_seed(1)
        net = resnet20(depth=depth)
        with torch.no_grad():
            for name, p in net.named_parameters():
                if "bn" in name:
                    p.add_(0.2 * torch.randn_like(p))
        return [net]

    x, y, _, _ = make(max(40, count), 10)
    data = Images.of(x, y, device)
    loader = StackLoader(data, [3])
    loader.start(5)
    plain = PlainNetwork(nets(), device)
    fused = FusedNetwork(
        nets(),
        device,
        batch=count + 2,
        test_batch=4,
        dtype=dtype,
        precision=precision,
        kinds=tiles,
        slots=slots,
    )
    (loss, right), (other, also) = plain.gradients(loader, count), fused.gradients(loader, count)
    assert other.tolist() == pytest.approx(loss.tolist(), rel=1e-5)
    assert also.tolist() == right.tolist()
    torch.testing.assert_close(fused.running, plain.running, rtol=1e-5, atol=1e-5)
    assert (
        plain.count_correct(data, loader, 4, 4).tolist() == fused.count_correct(data, loader, 4, 4).tolist()
    )
    assert (
        fused.gradient[0, fused.layout.convs[0].offset :][3 * 16 : 4 * 16].abs().max() == 0
    )  # the padding channel
    return ((plain.gradient - fused.gradient).norm() / plain.gradient.norm()).item()


GENERAL = """
wide, middle, small = (Tiles((n, 4, 2, 1), (n, 4, 1, 1), (n, 4, 1), n) for n in (1024, 256, 64))
kinds = {(4, 16): wide, (16, 16): wide, (16, 32): middle, (32, 32): middle, (32, 64): small, (64, 64): small}
slots = (2, 2, 2)
"""

DOWN_ROWS = """
def rows(images, span, group):
    return Rows(images, span, group, 4, 2)
kinds = {
    (4, 16): Tiles(rows(2, 16, 2), (1024, 4, 1, 1), (1024, 4, 1), 1024),
    (16, 16): Tiles(rows(2, 32, 2), rows(2, 16, 2), rows(1, 16, 2), 1024),
    (16, 32): Tiles((256, 4, 2, 1), rows(2, 8, 2), (256, 4, 1), 256),
    (32, 32): Tiles(rows(2, 16, 1), rows(2, 8, 1), (256, 4, 1), 256),
    (32, 64): Tiles((64, 4, 2, 1), rows(2, 4, 2), (64, 4, 1), 64),
    (64, 64): Tiles((64, 4, 1, 1), (64, 4, 1, 1), (64, 4, 1), 64),
}
slots = (4, 2, 2)
"""


@pytest.mark.parametrize("tiles", [GENERAL, DOWN_ROWS], ids=["general", "down rows"])
def test_fused_kernels_are_the_plain_loop_in_the_interpreter(tiles):
    """Every kernel, in float32, by Triton's interpreter (which must be chosen before Triton is imported)."""
    pytest.importorskip("triton")
    code = f"""
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]!r}
import torch
torch.set_num_threads(1)
from test_cifar import compare
from adaxlab.stacked.tiles import Rows, Tiles
{tiles}
print(compare(torch.device("cpu"), torch.float32, "ieee", 2, kinds, slots))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert float(done.stdout.split()[-1]) < 1e-4


FEW, MANY = 7, 8


@pytest.mark.parametrize("models", [FEW, MANY])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("train", "test"), [(50_000, 10_000), (45_056, 4_944)], ids=["final", "tuning"])
def test_tiles_fit_every_batch_of_an_epoch(models, dtype, train, test):
    """Batches of 128 and 80 images, evaluations of 1,000 and 944: nothing is launched on the device `meta`."""
    pytest.importorskip("triton")
    from adaxlab.stacked.fused import FusedNetwork
    from adaxlab.stacked.tiles import KINDS, KINDS_FEW, KINDS_FLOAT32

    nets = [make_net("resnet20", 0)] * models
    meta = torch.device("meta")
    net = FusedNetwork(nets, meta, dtype=dtype, train_size=train, test_size=test)
    expected = KINDS_FLOAT32 if dtype == torch.float32 else KINDS if models == MANY else KINDS_FEW
    assert net.kinds == expected
    for size, evaluated in ((50_001, 10_000), (50_000, 10_001)):
        with pytest.raises(ValueError, match="cannot be divided into tiles"):
            FusedNetwork(nets, meta, dtype=dtype, train_size=size, test_size=evaluated)


def test_few_models_and_float32_do_not_go_down_rows():
    from adaxlab.stacked.tiles import KINDS_FEW, KINDS_FLOAT32, Rows

    for tiles in (*KINDS_FEW.values(), *KINDS_FLOAT32.values()):
        assert not any(isinstance(tile, Rows) for tile in tiles)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fused_kernels_on_a_gpu_are_the_plain_loop():
    from adaxlab.stacked.tiles import KINDS_FLOAT32, SLOTS_FEW

    torch.backends.cudnn.allow_tf32 = False
    device = torch.device("cuda")
    assert compare(device, torch.float32, "tf32x3", 128, KINDS_FLOAT32, SLOTS_FEW, depth=20) < 1e-2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("count", [128, 80])
def test_the_kernels_of_a_study_are_as_accurate_as_the_general_ones(count):
    """In bfloat16, against the plain loop in float32: an H200 gave 0.067 for both tables (0.086 with 80 images)."""
    from adaxlab.stacked.fused import FusedNetwork
    from adaxlab.stacked.tiles import KINDS, KINDS_FEW, SLOTS, SLOTS_FEW

    torch.backends.cudnn.allow_tf32 = False
    x, y, _, _ = make(1000, 10)
    device = torch.device("cuda")
    loader = StackLoader(Images.of(x, y, device), [0, 1])
    loader.start(0)

    def nets():
        return [make_net("resnet20", seed) for seed in (0, 1)]

    plain = PlainNetwork(nets(), device)
    plain.gradients(loader, count)
    errors = []
    for kinds, slots in ((KINDS, SLOTS), (KINDS_FEW, SLOTS_FEW)):
        fused = FusedNetwork(nets(), device, kinds=kinds, slots=slots)
        fused.gradients(loader, 128)  # a short batch follows a whole one
        fused.gradients(loader, count)
        errors.append(((fused.gradient - plain.gradient).norm() / plain.gradient.norm()).item())
    assert errors[0] < 1.1 * errors[1]
    assert errors[1] < 0.3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("study", [TABLE2, ZOO], ids=lambda study: study.name)
def test_graphs_change_nothing(study):
    """Captured and eager steps give the same bits, over a drop of lr and a short last batch; two runs are traced."""
    from adaxlab.stacked.fused import FusedNetwork

    x, y, tx, ty = make(128 * 3 + 80, 1000)
    device = torch.device("cuda")
    train, test = Images.of(x[: 128 * 3 + 80], y, device), Images.of(tx, ty, device)
    ends = []
    for graphs in (True, False):
        chosen = first_runs(study)
        stack = Stack(
            chosen,
            train,
            test,
            StackRecipe(epochs=3, milestones=(2,)),
            make_network=FusedNetwork,
            graphs=graphs,
            trace=[run.row in ("adamw", "adaxw", "adam", "adax") for run in chosen],
        )
        for _ in range(3):
            stack.run_epoch()
        ends.append(stack)
    assert ends[0].history == ends[1].history
    assert torch.equal(ends[0].network.parameters, ends[1].network.parameters)
    assert ends[0].traces.kept == ends[1].traces.kept
    assert sum(map(bool, ends[0].traces.kept)) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("autocast", [False, True], ids=["float64", "bfloat16"])
def test_a_graph_of_the_plain_loop_trains_as_steps_do(autocast):
    """ResNet-18, which has no kernels of its own: the study `decay`. Two steps in float64. In bfloat16, where cuDNN may
    give other bits each time: gradients of weights that do not move."""
    x, y, tx, ty = make(80, 100)
    device = torch.device("cuda")
    train, test = Images.of(x, y, device), Images.of(tx, ty, device)
    chosen = first_runs(DECAY)
    if autocast:
        chosen = [replace(run, options={**run.options, "lr": 0.0}) for run in chosen]
    ends = []
    for graphs in (True, False):
        network = functools.partial(PlainNetwork, autocast=True) if autocast else Float64
        recipe = StackRecipe(model="resnet18", epochs=2, batch=80)
        stack = Stack(chosen, train, test, recipe, make_network=network, graphs=graphs)
        stack.run_epoch(), stack.run_epoch()
        assert bool(stack._graphs) == graphs
        ends.append(stack)
    for i in range(len(chosen)):
        (loss, other), (g, h) = (
            [e.history[i][-1]["train_loss"] for e in ends],
            [e.network.gradient[i] for e in ends],
        )
        assert loss == pytest.approx(other, rel=1e-2 if autocast else 1e-5)
        assert (g - h).norm() <= (0.1 if autocast else 1e-6) * h.norm()
