"""torch.compile of the step: few graphs however lr and b1 change, one graph without a break, and the eager numbers."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch._dynamo as dynamo
from infos import assert_near, build
from torch._dynamo.backends.registry import lookup_backend

NAMES = ("adaxw", "adax", "padax", "adam", "amsgrad", "adashift", "nosadam", "sgdm")
STEPS = 50
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # the compiler's own imports


@pytest.fixture(autouse=True)
def _fresh_compiler():
    dynamo.reset()
    dynamo.utils.counters.clear()
    yield
    dynamo.reset()


class Counting:
    """A backend that remembers how many operations each graph it compiled had.

    A graph that it gave back with an exception is not counted: inductor, with no cache to look into, restarts
    dynamo's analysis once to keep a Python float as a tensor, and is then given the same graph again.
    """

    def __init__(self, backend):
        self.backend = lookup_backend(backend)
        self.graphs = []

    def __call__(self, module, inputs):
        size = sum(node.op.startswith("call") for node in module.graph.nodes)
        compiled = self.backend(module, inputs)
        self.graphs.append(size)
        return compiled

    @property
    def count(self):
        return sum(size > 0 for size in self.graphs)


def float_lr(group, t):
    group["lr"] = 1e-2 / (1 + t)


def tensor_lr(group, t):
    group["lr"].fill_(1e-2 / (1 + t))


def float_lr_and_b1(group, t):
    group["lr"] = 1e-2 / (1 + t)
    group["betas"] = (0.9 - 0.005 * t, group["betas"][1])


def tensor_lr_and_float_b1(group, t):
    group["lr"].fill_(1e-2 / (1 + t))
    group["betas"] = (0.9 - 0.005 * t, group["betas"][1])


def tensor_lr_and_b1(group, t):
    group["lr"].fill_(1e-2 / (1 + t))
    group["betas"][0].fill_(0.9 - 0.005 * t)


def train(name, change, how="eagerly", backend="eager", steps=STEPS, missing=False, **kwargs):
    """Weights after some steps of a small net in float64, and the graphs that were compiled."""
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2).to(kwargs.pop("dtype", torch.float64))
    x = torch.randn(16, 3, dtype=net.weight.dtype)
    optimizer = build(name, net.parameters(), **kwargs)
    counting = Counting(backend)
    step = optimizer.step
    if how == "compiled":
        step = torch.compile(lambda: optimizer.step(), backend=counting)
    elif how == "unwrapped":
        raw = inspect.unwrap(type(optimizer).step)
        step = torch.no_grad()(torch.compile(lambda: raw(optimizer), backend=counting, fullgraph=True))
    for t in range(steps):
        optimizer.zero_grad()
        (net(x) ** 2).mean().backward()
        if missing and t == 0:
            net.bias.grad = None
        for group in optimizer.param_groups:
            change(group, t)
        step()
    return [p.detach().clone() for p in net.parameters()], counting, optimizer


def given(change, name):
    """Options with which `change` can be called."""
    options = {}
    if change.__name__.startswith("tensor_lr"):
        options["lr"] = torch.tensor(1e-2, dtype=torch.float64)
    if change is tensor_lr_and_b1:
        b2 = build(name, [torch.zeros(1)]).defaults["betas"][1]
        options["betas"] = (torch.tensor(0.9, dtype=torch.float64), b2)
    return options


CHANGES = [(name, "compiled", float_lr, 2) for name in NAMES] + [
    (name, "unwrapped", tensor_lr, 1) for name in NAMES
]
CHANGES += [
    ("adaxw", "unwrapped", float_lr, 2),
    ("adaxw", "compiled", tensor_lr, 1),
    ("adaxw", "compiled", float_lr_and_b1, 2),
    ("adaxw", "compiled", tensor_lr_and_float_b1, 2),
    ("adaxw", "unwrapped", tensor_lr_and_b1, 1),
    ("adam", "compiled", float_lr_and_b1, 2),
]


@pytest.mark.parametrize(
    ("name", "how", "change", "at_most"), CHANGES, ids=[f"{n}-{h}-{c.__name__}" for n, h, c, _ in CHANGES]
)
def test_few_graphs_and_the_eager_numbers(name, how, change, at_most):
    """50 steps in which the lr changes every time. `unwrapped` is one graph without a break (fullgraph=True)."""
    expected, _, plain = train(name, change, foreach=False, **given(change, name))
    weights, counting, optimizer = train(name, change, how, **given(change, name))
    assert 1 <= counting.count <= at_most
    if how == "unwrapped":
        assert not dynamo.utils.counters["graph_break"]
        assert counting.graphs == [size for size in counting.graphs if size > 5]
    assert_near(weights, expected, 1e-11)
    for ours, theirs in zip(optimizer.state.values(), plain.state.values(), strict=True):
        assert ours["step"] == STEPS
        assert_near([ours[k] for k in sorted(ours)], [theirs[k] for k in sorted(theirs)], 1e-11)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("adaxw", {"weight_decay": 0.1, "decay": "fully_decoupled", "maximize": True, "capturable": True}),
        ("padax", {"clip_update": 0.05, "eps": 1e-3, "eps_placement": "plain", "foreach": False}),
        ("adax", {"betas": (0.9, 0.0), "weight_decay": 0.1, "foreach": True}),
    ],
)
def test_options_compile(name, kwargs):
    expected, _, _ = train(name, tensor_lr, steps=4, **{**kwargs, "foreach": False}, **given(tensor_lr, name))
    weights, counting, _ = train(name, tensor_lr, "unwrapped", steps=4, **kwargs, **given(tensor_lr, name))
    assert counting.count == 1
    assert_near(weights, expected, 1e-11)


@pytest.mark.parametrize("rounding", ["stochastic", "kahan"])
def test_bfloat16_compiles(rounding):
    options = {"dtype": torch.bfloat16, "rounding": rounding, "steps": 6} | given(tensor_lr, "adaxw")
    expected, _, _ = train("adaxw", tensor_lr, foreach=False, **options)
    weights, counting, _ = train("adaxw", tensor_lr, "compiled", **options)
    eager = (
        rounding == "stochastic" and torch.__version__ < "2.7"
    )  # it traces no dict of parameters: runs as it is
    assert counting.count >= (not eager)
    for a, b in zip(weights, expected, strict=True):  # a number near the middle may round the other way
        torch.testing.assert_close(a, b, rtol=2**-7, atol=2**-10)


def test_a_gradient_that_comes_late_does_not_mix_times():
    expected, _, _ = train("adaxw", float_lr, steps=5, missing=True, foreach=False)
    weights, counting, optimizer = train("adaxw", float_lr, "compiled", steps=5, missing=True)
    assert_near(weights, expected, 1e-11)
    assert sorted(float(e["step"]) for e in optimizer.state.values()) == [4, 5]
    assert counting.count <= 4  # one more where the gradient appears, times two for a float lr


def test_aot_autograd_sees_the_writes():
    expected, _, _ = train("adaxw", float_lr, steps=5, foreach=False)
    weights, _, _ = train("adaxw", float_lr, "compiled", backend="aot_eager", steps=5)
    assert_near(weights, expected, 1e-11)


@pytest.mark.filterwarnings("ignore:Skipping serialization of skipfiles")  # torch 2.6's own
def test_inductor_computes_the_same(monkeypatch, tmp_path):
    """The real compiler: it builds C++ and is slow. With an empty cache, and with what that run left."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    options = {"dtype": torch.float32} | given(tensor_lr, "adaxw")
    expected, _, _ = train("adaxw", tensor_lr, foreach=False, **options)
    for cache in ("cold", "warm"):
        dynamo.reset()
        options |= given(tensor_lr, "adaxw")
        weights, counting, _ = train("adaxw", tensor_lr, "compiled", backend="inductor", **options)
        assert counting.count == 1, cache
        assert_near(weights, expected, 2e-6)
    assert any(tmp_path.iterdir())


def test_compiling_leaves_the_optimizer_usable_eagerly():
    """Steps compiled and eager in turns are the same run."""
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2, dtype=torch.float64)
    x = torch.randn(8, 3, dtype=torch.float64)
    results = []
    for mixed in (False, True):
        torch.manual_seed(1)
        net.reset_parameters()
        optimizer = build("adaxw", net.parameters(), foreach=False)
        compiled = torch.compile(lambda o=optimizer: o.step(), backend="eager")
        for t in range(6):
            optimizer.zero_grad()
            (net(x) ** 2).mean().backward()
            (compiled if mixed and t % 2 else optimizer.step)()
        results.append([p.detach().clone() for p in net.parameters()])
    assert_near(results[1], results[0], 1e-11)
