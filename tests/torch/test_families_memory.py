"""Default dtypes do not leak into a step, nothing grows from step to step, and foreach needs no more than torch's."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
import weakref

import pytest
import torch
from infos import (
    TORCH,
    assert_same,
    build,
    each_input,
    each_method,
    everything,
    parameters,
    run,
    set_gradients,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import adaxopt


@each_input()
@pytest.mark.parametrize(
    "default", [torch.float64, torch.bfloat16, torch.float16], ids=["fp64", "bf16", "fp16"]
)
def test_the_default_dtype_changes_nothing(name, kwargs, default):
    expected = everything(*run(name, dtype=torch.float32, **kwargs))
    torch.set_default_dtype(default)
    params, optimizer = run(name, dtype=torch.float32, **kwargs)
    assert_same(everything(params, optimizer), expected)
    assert all(optimizer.state[p]["step"].dtype == torch.float64 for p in params)


@each_method
@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16], ids=["fp64", "bf16"])
@pytest.mark.parametrize("way", ["capturable", "differentiable"])
def test_the_default_dtype_changes_nothing_where_numbers_are_tensors(name, default, way):
    def go():
        params = parameters(torch.float32)
        for p in params:
            p.requires_grad_(way != "differentiable")
        optimizer = build(
            name, params, lr=0.01, **{way: True}, **({"window": 2} if name == "adashift" else {})
        )
        for t in range(4):
            set_gradients(params, t)
            optimizer.step()
        return everything(params, optimizer)

    expected = go()
    torch.set_default_dtype(default)
    assert_same(go(), expected)


def test_importing_under_another_default_dtype_changes_nothing():
    program = (
        "import torch; torch.set_default_dtype(torch.bfloat16); import adaxopt\n"
        "p = torch.nn.Parameter(torch.linspace(1, 2, 7, dtype=torch.float32)); o = adaxopt.AdaXW([p])\n"
        "for t in range(5): p.grad = torch.cos(p.detach() * t); o.step()\n"
        "print([x.hex() for x in p.tolist()])"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    p = torch.nn.Parameter(torch.linspace(1, 2, 7))
    optimizer = adaxopt.AdaXW([p])
    for t in range(5):
        p.grad = torch.cos(p.detach() * t)
        optimizer.step()
    assert out.strip() == str([x.hex() for x in p.tolist()])


@pytest.mark.parametrize("name", ["adaxw", "padax", "amsgrad", "adashift"])
@pytest.mark.parametrize(
    "way", [{}, {"foreach": True}, {"capturable": True}], ids=["default", "foreach", "capturable"]
)
def test_nothing_grows_from_step_to_step(name, way):
    """After 60 steps there are as many Python objects as after 20, missing gradients included.

    Bytes are bounded loosely besides: torch's own calls (`Tensor.to`) leave some behind under tracemalloc.
    """
    params = parameters(torch.float32)
    optimizer = build(name, params, **way)

    def go(first, last):
        for t in range(first, last):
            for i, p in enumerate(params):
                p.grad = None if (t + i) % 4 == 0 else torch.ones_like(p)
            optimizer.step()

    def held():
        gc.collect()  # empties Python's free lists, too
        ours = tracemalloc.Filter(True, "*/adaxopt/*")
        traces = tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
        size = sum(s.size for s in traces)
        del traces
        return len(gc.get_objects()), size

    gc.freeze()
    go(0, 8)
    tracemalloc.start()
    try:
        go(8, 20)
        held()
        objects, size = held()
        go(20, 60)
        more_objects, more_size = held()
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert more_objects - objects <= 0
    assert more_size - size < 40 * 400


@each_method
def test_an_optimizer_holds_its_state_and_no_more(name):
    """After a step nothing else holds a gradient; with the optimizer, all of its state goes."""
    gc.freeze()
    params, optimizer = run(name, steps=3, dtype=torch.float32)
    held = [weakref.ref(v) for p in params for v in optimizer.state[p].values()]
    grads = [weakref.ref(p.grad) for p in params]
    optimizer.zero_grad()
    gc.collect()
    assert not any(r() is not None for r in grads)
    del optimizer
    gc.collect()
    gc.unfreeze()
    assert not any(r() is not None for r in held)


class Bytes(TorchDispatchMode):
    """Counts the bytes of storages that a step makes and how many are alive at once: deterministic, unlike timing."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.now = self.peak = 0

    def _gone(self, key: int) -> None:
        self.now -= self.alive.pop(key)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        known = {
            t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)
        }
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if not isinstance(t, torch.Tensor):
                continue
            storage = t.untyped_storage()
            key = storage._cdata
            if key in known or key in self.alive:
                continue
            self.alive[key] = storage.nbytes()
            self.now += storage.nbytes()
            weakref.finalize(t, self._gone, key)
        self.peak = max(self.peak, self.now)
        return out


def extra_bytes(make, steps=3, **kwargs):
    """The most bytes that a step had alive at once, beyond what stays."""
    params = [torch.nn.Parameter(torch.ones(100, 100)) for _ in range(6)]
    optimizer = make(params, **kwargs)
    for t in range(steps):
        for i, p in enumerate(params):
            p.grad = torch.full_like(p, 0.1 + i + t)
        with Bytes() as mode:
            optimizer.step()
    return mode.peak


def test_bytes_are_counted_rightly():
    with Bytes() as mode:
        a = torch.ones(100) * 2.0  # 400, then 400 more
        del a
        b = torch.zeros(50, dtype=torch.float64)
        b.view(2, 25).add_(1.0)
    assert mode.peak == 800
    assert mode.now == 400


PEAK_OPTIONS = {
    "plain": {"weight_decay": 0.0},
    "decay": {"weight_decay": 0.1},
    "maximize": {"weight_decay": 0.0, "maximize": True},
}


@pytest.mark.parametrize("name", [*TORCH, "adax", "adaxw", "padax"])
@pytest.mark.parametrize("kwargs", list(PEAK_OPTIONS.values()), ids=list(PEAK_OPTIONS))
def test_foreach_needs_no_more_memory_than_torchs(name, kwargs):
    """Beside torch's own method, or, for AdaX, beside Adam or AdamW with the same kind of decay."""
    theirs = TORCH.get(name) or TORCH["adamw" if name == "adaxw" else "adam"]
    ours = extra_bytes(lambda p, **k: build(name, p, **k), foreach=True, **kwargs)
    reference = extra_bytes(theirs, foreach=True, **kwargs)
    assert ours <= reference + 4096  # 0-d tensors aside; one parameter of the six is 40,000 bytes


@pytest.mark.parametrize("name", ["adax", "adaxw"])
def test_the_default_on_a_cpu_needs_none(name):
    assert extra_bytes(lambda p, **k: build(name, p, **k)) < 4096
    assert extra_bytes(lambda p, **k: build(name, p, **k), foreach=True) >= 240_000  # the other path does
