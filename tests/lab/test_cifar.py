"""Stacks of runs: order, crops, gradients, resuming, and that the plain loop learns. Oracles are written out slowly."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cifar_sets import Float64, binary, make

from adaxlab.data import cifar10, order
from adaxlab.models import make as make_net
from adaxlab.optimizers import build
from adaxlab.stacked.loader import MEAN, STD, Images, StackLoader
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


EIGHT_BIT = {"lr": 3e-3, "weight_decay": 0.1, "state_dtype": "uint8"}


def test_scales_and_random_bits_of_8_bit_state_do_not_depend_on_the_company():
    train, test = images(20)
    recipe = StackRecipe(epochs=2, batch=16)
    eight = [Run("8-bit", "adamw", EIGHT_BIT, seed) for seed in (0, 1)]
    alone = Stack(eight[1:], train, test, recipe)
    together = Stack([*runs("sgdm"), *eight], train, test, recipe)
    for stack in (alone, together):
        stack.run_epoch(), stack.run_epoch()
    assert torch.equal(alone.network.parameters[0], together.network.parameters[2])
    assert alone.history[0] == together.history[2]


@pytest.mark.parametrize("model", ["resnet20", "resnet18"])
def test_an_optimizer_of_one_run_has_the_tensors_of_its_network(model):
    """Every coordinate is in one tensor, and each tensor is a parameter of the module."""
    stack = Stack(
        [Run("8-bit", "adamw", EIGHT_BIT, 0)], *images(20), StackRecipe(model=model, epochs=1, batch=16)
    )
    mine = stack.optimizers[0].param_groups[0]["params"]
    row = stack.network.parameters[0]
    for p in mine:
        assert p.grad is not None
        assert p.grad.shape == p.shape
        p.data.fill_(7.0)
    wanted = dict(make_net(model, 0).named_parameters())
    found = stack.network.layout.unpack(row)
    assert len(mine) == len(wanted)
    assert all((found[name] == 7.0).all() for name in wanted)
    padding = 9 * 16 if model == "resnet20" else 0  # the fourth channel of the image
    assert sum(p.numel() for p in mine) == sum(p.numel() for p in wanted.values()) + padding


def test_8_bit_state_is_not_traced():
    both = [*runs("adaxw", seeds=(0, 1)), Run("8-bit", "adamw", EIGHT_BIT, 0)]
    recipe = StackRecipe(epochs=1, batch=16)
    Stack(both, *images(20), recipe, trace=[True, True, False]).run_epoch()
    with pytest.raises(ValueError, match="run 2: only element-wise optimizers are traced"):
        Stack(both, *images(20), recipe, trace=[False, False, True]).run_epoch()


def test_cut_and_resumed_there_is_no_seam(tmp_path):
    train, test = images(20)
    recipe = StackRecipe(epochs=3, milestones=(1, 2), batch=16)
    some = [*runs(*ROWS), Run("8-bit", "adamw", EIGHT_BIT, 0)]
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


def test_trace_is_the_second_moments():
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
        assert all(len(values) == 4 for values in trace.values())
