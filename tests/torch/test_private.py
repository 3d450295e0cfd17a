"""Each private API of torch and Triton, hidden: the step that is left computes the same, or hands over."""

import ast
import importlib
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from adaxopt import AdaX, AdaXW, clip_grad_norm_, create
from adaxopt.torch import private

SOURCE = Path(private.__file__).parent
FOREACH = sorted(set(re.findall(r'_foreach\("(\w+)"\)', Path(private.__file__).read_text())))


@pytest.fixture
def hide(monkeypatch):
    """Hide names of torch and read `private` anew, as a torch without them would."""

    def hidden(*paths):
        for path in paths:
            owner, _, name = path.rpartition(".")
            place = torch
            for part in owner.split(".") if owner else ():
                place = getattr(place, part)
            monkeypatch.delattr(place, name)
        importlib.reload(private)

    yield hidden
    monkeypatch.undo()
    importlib.reload(private)


OPTIMIZERS = {
    "fused": lambda p: AdaXW(p, lr=1e-2),
    "foreach": lambda p: AdaXW(p, lr=1e-2, foreach=True, maximize=True),
    "l2, clipped": lambda p: AdaX(p, lr=1e-2, weight_decay=0.1, clip_update=0.5),
    "l2, maximize": lambda p: AdaX(p, lr=1e-2, weight_decay=0.1, foreach=True, maximize=True),
    "capturable": lambda p: AdaXW(p, lr=torch.tensor(1e-2, dtype=torch.float64), capturable=True),
    "clipped, capturable": lambda p: AdaXW(p, lr=1e-2, capturable=True, clip_update=0.5),
    "maximum": lambda p: create("amsgrad", p, lr=1e-2, foreach=True),
    "a sum, no second moment": lambda p: create("sgdm", p, lr=1e-2, clip_update=0.5),
    "a window": lambda p: create("adashift", p, lr=1e-2, window=2),
    "eps inside": lambda p: create("padam", p, lr=1e-2),
    "p": lambda p: create("padax", p, lr=1e-2),
    "16 bits": lambda p: AdaXW(p, lr=1e-2, rounding="kahan"),
}


def walked(make, steps=4):
    """Parameters and state after a few steps; one coordinate is activated late."""
    dtype = torch.bfloat16 if make is OPTIMIZERS["16 bits"] else torch.float64
    generator = torch.Generator().manual_seed(0)
    params = [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in ((5, 3), (7,))]
    optimizer = make(params)
    for t in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator, dtype=dtype)
            p.grad.view(-1)[0] *= t > 1
        optimizer.step()
    kept = [t for p in params for k, t in sorted(optimizer.state[p].items()) if k != "step"]
    return [t.detach().clone() for t in (*params, *kept)]


def same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_without_operations_on_lists(name, hide):
    expected = walked(OPTIMIZERS[name])
    hide(*(f"_foreach_{operation}" for operation in FOREACH))
    same(walked(OPTIMIZERS[name]), expected)


def test_every_operation_on_lists_is_used():
    used = set(re.findall(r"private\.foreach_(\w+)", "".join(p.read_text() for p in SOURCE.glob("*.py"))))
    assert used == set(FOREACH)


def test_without_the_fused_cpu_kernel(hide):
    expected = walked(OPTIMIZERS["fused"])
    hide("_fused_adam_", "_fused_adamw_")
    same(walked(OPTIMIZERS["fused"]), expected)
    with pytest.raises(ValueError, match="fused=True: this torch has no fused CPU kernel; leave fused=None"):
        walked(lambda p: AdaXW(p, fused=True))


@pytest.mark.parametrize("path", ["ops.aten.hardtanh_backward", None])
def test_where_v_is_zero(path, monkeypatch):
    """With and without torch's operator: g where v is 0, whatever else g and v are."""
    if path:
        monkeypatch.setattr(private, "_inside", None)
    inf, nan = torch.inf, torch.nan
    g = torch.tensor([1.0, -inf, nan, inf, nan, 2.0, 3.0])
    v = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 1e-45, inf])
    expected = torch.tensor([1.0, -inf, nan, 0.0, 0.0, 0.0, 0.0])
    torch.testing.assert_close(private.where_zero(g, v), expected, rtol=0, atol=0, equal_nan=True)


def test_where_v_is_zero_and_small_numbers_are_flushed():
    if not torch.set_flush_denormal(True):
        pytest.skip("this CPU keeps small numbers")
    try:
        got = private.where_zero(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 1.0]))
    finally:
        torch.set_flush_denormal(False)
    assert got.tolist() == [1.0, 0.0]


def test_without_the_compilers_guards(hide):
    expected = walked(OPTIMIZERS["fused"])
    hide("_C._dynamo.guards.TensorGuards")
    known = private.alike([torch.ones(2, 3), torch.ones(4)])
    assert known(torch.zeros(2, 3), torch.zeros(4))
    others = (torch.zeros(3, 2).t(), torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 4), None)
    assert not any(known(other, torch.zeros(4)) for other in (*others, torch.zeros(2, 3).to_sparse()))
    same(walked(OPTIMIZERS["fused"]), expected)


class CountsNothing:
    @property
    def _version(self):
        raise AttributeError("_version")


def test_without_counts_of_changes():
    t = torch.ones(2)
    before = private.versions([t])
    assert private.versions([t]) == before != private.versions([t.add_(1)])
    assert private.versions([t, CountsNothing()]) is None


def test_without_shortcuts_of_a_step(hide, monkeypatch):
    """Hooks run, and gradients are recorded in a differentiable step alone, whatever torch offers."""
    expected = walked(OPTIMIZERS["fused"])
    hide("_disable_dynamo")
    monkeypatch.setattr(
        private, "set_grad_enabled", torch.set_grad_enabled
    )  # which needs the private one itself
    monkeypatch.setattr(
        private, "sys", SimpleNamespace(modules={})
    )  # where torch keeps hooks of all optimizers
    same(walked(OPTIMIZERS["fused"]), expected)
    seen = []

    class Counted(AdaXW):
        step = private.lightly_hooked(AdaXW.step.__wrapped__)

    p = torch.nn.Parameter(torch.ones(2))
    optimizer = Counted([p])
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    p.grad = torch.ones(2)
    optimizer.step()
    assert seen == ["before"]
    assert not p.requires_grad or p.grad_fn is None


def test_without_torchs_wrapper_around_a_step(monkeypatch):
    monkeypatch.delattr(torch.optim.Optimizer, "profile_hook_step")
    assert private.lightly_hooked(walked) is walked


def test_a_graph_is_broken_without_torchs_function(hide, monkeypatch):
    calls = []
    hide("_dynamo.graph_break")
    monkeypatch.setattr(private, "_untraced", lambda: calls.append(1))
    private.graph_break()
    assert calls == [1]


def test_without_hooks_for_loading():
    class Bare:
        pass

    assert list(private.loading_hooks(Bare(), "pre")) == []


class Coalesced:
    """A sparse tensor that has nothing private."""

    def __init__(self, t):
        self.t = t.coalesce()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.t, name)


def test_without_a_sparse_tensors_private_parts():
    g = torch.sparse_coo_tensor([[0, 2]], torch.ones(2, 3), (4, 3), check_invariants=True)
    bare = Coalesced(g)
    assert [t.tolist() for t in private.stored(bare)] == [[[0, 2]], torch.ones(2, 3).tolist()]
    assert not private.is_empty(bare)
    assert private.is_empty(Coalesced(torch.sparse_coo_tensor(size=(4, 3), check_invariants=True)))
    p = torch.nn.Parameter(torch.ones(4, 3))
    p.grad = g
    assert clip_grad_norm_([p], 1.0).item() == pytest.approx(6**0.5)


def test_without_fake_tensors():
    assert not private.is_fake(torch.ones(1))
    with torch._subclasses.FakeTensorMode():
        assert private.is_fake(torch.ones(1))


class Whole:
    def __init__(self, t):
        self.t = t

    def detach(self):
        return self

    def to_local(self):
        return self.t


def test_without_a_dtensors_private_part():
    t = torch.ones(1)
    assert private.local_part(Whole(t)) is t


def test_without_a_way_to_bare_launches():
    class Kernel:
        def warmup(self, *given, **options):
            raise TypeError("other arguments")

    assert private.bare_launch(Kernel(), [], [], {}, {}) is None


def test_without_cudas_private_functions(hide):
    if not hasattr(torch._C, "_cuda_getDevice"):
        assert private.current_device is torch.cuda.current_device  # this build has none to hide
        return
    hide("_C._cuda_getDevice", "_C._cuda_getCurrentRawStream")
    assert private.current_device is torch.cuda.current_device
    if torch.cuda.is_available():
        assert private.raw_stream(0) == torch.cuda.current_stream(0).cuda_stream


OURS = {"_place", "_project", "_replace", "_make", "_getframe", "_opt_called"}
"""Names with an underscore that are not torch's or Triton's; the last is written, for schedulers to read."""


@pytest.mark.parametrize("path", sorted(SOURCE.glob("*.py")), ids=lambda p: p.name)
def test_no_other_module_uses_a_private_name(path):
    if path.name == "private.py":
        return
    tree = ast.parse(path.read_text())
    own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr.startswith("_")]
    foreign = {
        ast.unparse(n)
        for n in attributes
        if not n.attr.startswith("__") and n.attr not in own | OURS and not ours(n.value)
    }
    imported = {
        f"{n.module}.{a.name}"
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom) and (n.module or "").split(".")[0] in ("torch", "triton")
        for a in n.names
        if "._" in f"{n.module}.{a.name}"
    }
    assert not foreign | imported


def ours(node):
    """Whether a value is one of our own objects, by its name in the package."""
    return isinstance(node, ast.Name) and node.id in ("self", "optimizer", "plan", "known", "super")
