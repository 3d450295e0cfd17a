"""A finite gradient whose square overflows: parameters stay finite, and the same on every path.

Where k_t*g^2 exceeds the largest number, v is infinite from then on and its coordinate is updated no more.
"""

from __future__ import annotations

import interpreter
import overflow_table as table
import pytest
import torch
from overflow_table import BF16, F32, F64, SPIKES, TIMES

from adaxopt import AdaXW, Ball, create
from adaxopt.zoo import METHODS
from runner import FUSES

SPARSE = [n for n in METHODS if METHODS[n].rule.memory is not None and METHODS[n].rule.mean != "window"]
each_time = pytest.mark.parametrize("t0", TIMES)
each_spike = pytest.mark.parametrize(
    ("dtype", "spike"), [(d, g) for d, gs in SPIKES.items() for g in gs], ids=lambda x: str(x).split(".")[-1]
)

OPTIONS = {
    "default": {},
    "foreach": dict(foreach=True),
    "for-loop": dict(foreach=False),
    "capturable": dict(capturable=True),
    "differentiable": dict(differentiable=True),
}
KNOBS = {
    "maximize": dict(maximize=True),
    "l2": dict(weight_decay=0.125, decay="l2"),
    "decoupled": dict(weight_decay=0.125, decay="decoupled"),
    "b2 of 0": dict(betas=(0.5, 0.0)),
    "unguarded": dict(wake=False),
    "guarded": dict(wake=True),
}


def compiled(optimizer):
    return torch.compile(lambda: optimizer.step(), backend="aot_eager")


KNOBS_OF = [
    (name, knob)
    for name in ("adaxw", "adam", "amsgrad", "rmsprop", "padax", "padam", "adagrad")
    for knob, options in KNOBS.items()
    if METHODS[name].rule.mean != "none" or "betas" not in options
]
"""Methods without a first moment have no betas."""


if not interpreter.HERE:

    @each_spike
    @each_time
    @pytest.mark.parametrize("path", OPTIONS)
    @pytest.mark.parametrize("name", METHODS)
    def test_every_path(name, path, t0, dtype, spike):
        table.check(name, spike, t0, dtype, OPTIONS[path])

    @each_spike
    @each_time
    @pytest.mark.parametrize("name", FUSES)
    def test_fused(name, t0, dtype, spike):
        table.check(name, spike, t0, dtype, dict(fused=True))

    @each_spike
    @each_time
    @pytest.mark.parametrize("name", SPARSE)
    def test_rows(name, t0, dtype, spike):
        table.check(name, spike, t0, dtype, {}, sparse=True)

    @pytest.mark.parametrize(("name", "knob"), KNOBS_OF)
    @pytest.mark.parametrize("path", OPTIONS)
    @pytest.mark.parametrize("spike", [1e20, 1e30])
    @pytest.mark.parametrize("t0", [0, 1_000])
    def test_knobs(name, path, knob, spike, t0):
        table.check(name, spike, t0, F32, {**OPTIONS[path], **KNOBS[knob]})

    @pytest.mark.parametrize("t0", [0, 1_000])
    @pytest.mark.parametrize("name", ["adaxw", "padax", "amsgrad", "nosadam", "adashift"])
    @pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
    def test_compiled(name, t0):
        torch._dynamo.reset()
        table.check(name, 1e30, t0, F32, {}, step=compiled)

    @pytest.mark.parametrize("name", ["adaxw", "padax", "amsgradw"])
    @pytest.mark.parametrize("options", [{}, dict(rounding="kahan"), dict(state_dtype=BF16)], ids=str)
    @pytest.mark.parametrize("t0", [0, 1_000])
    def test_bfloat16(name, options, t0):
        """1e20 is a bfloat16 number; its square is no float32."""
        table.check(name, 1e20, t0, BF16, options)

    @pytest.mark.parametrize("name", ["adaxw", "amsgradw"])
    def test_bfloat16_state_of_float32_parameters(name):
        table.check(name, 1e30, 1_000, F32, dict(state_dtype=BF16))

    @pytest.mark.parametrize(
        "path", [{}, dict(fused=True), dict(foreach=True), dict(capturable=True)], ids=str
    )
    def test_scaled(path):
        table.check("adaxw", 1e25, 1_000, F32, path, scale=8.0)

    @pytest.mark.parametrize("path", [{}, dict(foreach=True), dict(capturable=True)], ids=str)
    def test_complex_halves_overflow_each_by_itself(path):
        p = torch.nn.Parameter(torch.ones(1, dtype=torch.complex64))
        optimizer = AdaXW([p], lr=0.1, weight_decay=0.0, **path)
        for _ in range(3):
            p.grad = torch.tensor([complex(1e30, 1.0)])
            optimizer.step()
        assert p.real.item() == 1.0
        assert -0.1 < p.imag.item() < -0.01
        assert optimizer.stats()[0]["lost"] == 0.5

    @pytest.mark.parametrize("bad", [float("inf"), float("nan")], ids=str)
    @pytest.mark.parametrize("path", OPTIONS)
    @pytest.mark.parametrize("name", METHODS)
    def test_what_is_not_finite_still_shows(name, path, bad):
        steps = [(bad, 0), (0.5, 1), (0.5, 2)]
        options = {**OPTIONS[path], **({"window": 1} if name == "adashift" else {})}
        optimizer, x = table.run(name, steps, F32, options)
        assert x[:2].isfinite().all()
        assert not x[2].isfinite().any()
        if METHODS[name].rule.memory is not None:
            assert optimizer.stats()[0]["lost"] == 1 / 3

    def test_a_restarted_memory_is_finite_again():
        optimizer, x = table.run("adaxw", [(1e30, 0), (0.5, 1)], F32, dict(lr=0.1, weight_decay=0.0))
        assert x[2] == 1.0
        optimizer.restart_memory()
        p = optimizer.param_groups[0]["params"][0]
        p.grad = torch.full_like(p, 0.5)
        optimizer.step()
        assert p[2].item() == pytest.approx(1.0 - 0.01)
        assert optimizer.stats()[0]["lost"] == 0.0

    @pytest.mark.parametrize("path", [{}, dict(capturable=True), dict(differentiable=True)], ids=str)
    def test_a_projection_keeps_what_stands_still(path):
        """Its denominator, the metric of the projection, is infinite."""
        p = torch.tensor([3.0, 4.0])
        p = p if path.get("differentiable") else torch.nn.Parameter(p)
        optimizer = AdaXW([p], lr=1e-3, weight_decay=0.0, project=Ball(4.0), **path)
        p.grad = torch.tensor([1e30, 1.0])
        optimizer.step()
        assert p[0].item() == pytest.approx(3.0)
        assert p[1].item() == pytest.approx(7**0.5)

    @pytest.mark.parametrize("name", ["adaxw", "padax", "adam"])
    def test_the_hypergradient_stays_finite(name):
        """d x / d lr and d x / d b2 through a step in which one coordinate overflows."""
        lr = torch.tensor(0.1, dtype=F64, requires_grad=True)
        b2 = torch.tensor(1e-3, dtype=F64, requires_grad=True)
        p = torch.ones(2, dtype=F64)
        optimizer = create(name, [p], lr=lr, betas=(0.9, b2), weight_decay=0.0, differentiable=True)
        for g in (1e200, 0.5, 1e200):
            p.grad = torch.tensor([g, 0.5], dtype=F64)
            optimizer.step()
        p.sum().backward()
        assert lr.grad.isfinite()
        assert b2.grad.isfinite()

    def test_in_the_interpreter():
        pytest.importorskip("triton", reason="the kernel needs Triton")
        interpreter.run(__file__)

else:
    pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")  # NumPy's own

    @pytest.mark.parametrize("name", SPARSE)
    def test_kernel(name):
        for spike, t0 in ((1.5e38, 0), (1e20, 1_000), (-3e25, 3_000_000)):
            table.check(name, spike, t0, F32, {})
        table.check(name, 1e250, 1, F64, {})

    @pytest.mark.parametrize("name", ["adaxw", "amsgrad"])
    def test_kernel_of_rows(name):
        for spike, t0 in ((1.5e38, 0), (1e20, 1_000)):
            table.check(name, spike, t0, F32, {}, sparse=True)

    @pytest.mark.parametrize("knob", ["l2", "maximize", "b2 of 0", "guarded"])
    @pytest.mark.parametrize("name", ["adam", "amsgrad"])
    def test_kernel_knobs(name, knob):
        table.check(name, 1e30, 1_000, F32, KNOBS[knob])

    @pytest.mark.parametrize("options", [dict(state_dtype=BF16), dict(rounding="kahan")], ids=str)
    def test_kernel_bfloat16(options):
        table.check("adaxw", 1e20, 1_000, BF16, options)
