"""The Triton kernels, interpreted on CPU tensors: every kind, dtype and option against the rule in float64.

Triton decides at import whether it interprets, so that the table runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", reason="the kernel needs Triton")

import interpreter

SOURCE = Path(__file__).resolve().parents[2] / "src"

if not interpreter.HERE:

    def test_table_in_the_interpreter():
        interpreter.run(__file__)

    WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import torch
from adaxopt import AdaXW, create, step_in_backward
from adaxopt.torch import fused_cuda as f
assert f.missing() == "Triton is not installed", f.missing()
assert f.unsuitable(torch.ones(2), {}, None) == "Triton is not installed"
assert not f.interpreted()
ends = []
for options in ({}, {"fused": True}, {"foreach": True}, {"foreach": False}, {"capturable": True}):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    start = model.weight.detach().clone()
    optimizer = AdaXW(model.parameters(), lr=1e-2, **({} if interpreted and "fused" in options else options))
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 3)).square().mean().backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    step_in_backward(optimizer)
    model(torch.ones(4, 3)).square().mean().backward()
    assert optimizer.state[model.weight]["step"] == 4
    ends.append(model.weight.detach())
assert all(torch.allclose(w, ends[0], rtol=1e-5) for w in ends) and (ends[0] - start).abs().min() > 1e-3
p = torch.nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
p.grad = torch.ones_like(p)
create("amsgradw", [p], state_dtype=torch.bfloat16, rounding="stochastic").step()
assert (p != 1).any()
"""

    @pytest.mark.parametrize("interpreted", [False, True])
    def test_works_and_says_why_without_triton(interpreted):
        """The CPU paths go on as ever; also where TRITON_INTERPRET=1 asks for kernels that are not there."""
        env = {**os.environ, "TRITON_INTERPRET": str(int(interpreted)), "PYTHONPATH": str(SOURCE)}
        code = f"interpreted = {interpreted}\n{WITHOUT_TRITON}"
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def test_a_cpu_parameter_is_refused_where_kernels_are_compiled():
        from adaxopt.torch import fused_cuda

        assert "not on a CUDA device" in fused_cuda.unsuitable(torch.ones(2), {}, None)

else:
    import kernel_table as table
    from kernel_table import BF16, F16, F32, F64, Case, simple
    from shares import Shares

    from adaxopt import AdamW, Fading, create
    from adaxopt.torch import fused_cuda, launch
    from adaxopt.zoo import METHODS
    from runner import check_late_coordinate

    @pytest.mark.parametrize("case", table.TABLE, ids=str)
    def test_one_step_is_the_rule(case):
        table.check(case)

    @pytest.mark.parametrize("dtype", [BF16, F16])
    def test_random_bits_are_those_of_rounding_py(dtype):
        table.check_bits(dtype)

    @pytest.mark.parametrize("method", table.ALL)
    def test_numbers_from_1_to_a_billion_steps(method):
        table.check_numbers(method)

    def test_found_inf_stops_everything_and_time():
        plan, params, states, hyper = simple([(50,), (3,)])
        grads = [torch.full_like(p, float("inf")) for p in params]
        before = [p.clone() for p in params]
        plan.step(hyper, torch.tensor(2.0), torch.tensor(1.0), grads=grads)
        for p, b, s in zip(params, before, states, strict=True):
            assert torch.equal(p, b)
            assert s["step"] == 0
            assert not s["exp_avg"].any()
        plan.step(hyper, torch.tensor(2.0), torch.tensor(0.0), grads=[torch.ones_like(p) for p in params])
        assert all(s["step"] == 1 and s["exp_avg"].allclose(torch.tensor(0.05)) for s in states)

    def test_a_parameter_without_gradient_keeps_its_own_time():
        plan, params, states, hyper = simple([(5,), (2000,), (3,)])
        for present in ([1, 1, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 1]):
            plan.step(
                hyper,
                grads=[torch.ones_like(p) if on else None for p, on in zip(params, present, strict=True)],
            )
        assert [s["step"].item() for s in states] == [3, 3, 3]
        alone, others, _, hyper = simple([(5,), (2000,), (3,)])
        for _ in range(3):
            alone.step(hyper, grads=[torch.ones_like(p) for p in others])
        assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))

    def test_gradients_are_taken_from_the_parameters():
        plan, params, states, hyper = simple([(5,), (7,)])
        params[0].grad = torch.ones(5)
        assert plan.step(hyper) == []
        assert [s["step"].item() for s in states] == [1, 0]

    def test_lr_and_decay_may_change_every_step():
        plan, params, _, hyper = simple([(40,)])
        x = params[0].double()
        m, v = torch.zeros(40, dtype=F64), torch.zeros(40, dtype=F64)
        from adaxopt import rule

        for t in range(1, 41):  # more than once around the ring of slots
            now = {**hyper, "lr": 1e-3 * t, "weight_decay": 1e-2 / t}
            g = torch.cos(torch.arange(40.0) * t)
            plan.step(now, grads=[g])
            x, m, v, _, _ = rule.step(
                x, g.double(), m, v, METHODS["adaxw"].numbers(t, now), wake=True, xp=torch
            )
        assert torch.allclose(params[0].double(), x, rtol=1e-5, atol=1e-5)
        assert len(plan.buckets[0].slots.last) == launch.SLOTS

    def test_betas_in_a_list_may_change_in_place():
        plan, _, states, hyper = simple([(5,)], betas=[0.9, 1e-4])
        plan.step(hyper, grads=[torch.ones(5)])
        hyper["betas"][0] = 0.0
        plan.step(hyper, grads=[torch.full((5,), 2.0)])
        assert torch.equal(states[0]["exp_avg"], torch.full((5,), 2.0))

    def test_channels_last_is_flat_memory_and_other_layouts_come_back():
        shapes = [(4, 3, 5, 5), (6,), (8, 4, 1, 1), (2, 3, 4, 4)]
        last, params, states, hyper = simple(shapes, layout=torch.channels_last)
        plain, others, _, _ = simple(shapes)
        grads = [torch.randn(p.shape, generator=torch.Generator().manual_seed(9)) for p in params]
        assert last.step(hyper, grads=grads) == [0, 3]
        assert [s["step"].item() for s in states] == [0, 1, 1, 0]
        matching = [g.to(memory_format=torch.channels_last) if g.dim() == 4 else g for g in grads]
        assert last.step(hyper, grads=[matching[0], None, None, matching[3]]) == []
        assert plain.step(hyper, grads=grads) == []
        assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))
        assert params[0].is_contiguous(memory_format=torch.channels_last)

    def test_gradients_that_are_not_flat_memory_come_back_untouched():
        plan, params, states, hyper = simple([(4, 6), (3,), (3,), (5,)])
        grads = [
            torch.ones(6, 4).t(),
            torch.ones(1).expand(3),
            torch.ones(6)[::2],
            torch.sparse_coo_tensor([[1]], [1.0], (5,), check_invariants=True),
        ]
        before = [p.clone() for p in params]
        assert plan.step(hyper, grads=grads) == [0, 1, 2, 3]
        assert all(torch.equal(p, b) for p, b in zip(params, before, strict=True))
        assert plan.step(hyper, grads=[torch.ones_like(p) for p in params]) == []
        assert [s["step"].item() for s in states] == [1, 1, 1, 1]

    def test_a_parameter_of_another_shape_where_it_lay_comes_back_untouched():
        """As pruning does it: `p.data = p.data[:2]` begins at the same address."""
        for change in (lambda t: t[:2], lambda t: t.t()):
            plan, params, states, hyper = simple([(4, 4), (3,)])
            plan.step(hyper, grads=[torch.ones_like(p) for p in params])
            before = params[0].clone()
            params[0].data = change(params[0].data)
            assert plan.step(hyper, grads=[torch.empty_like(p).fill_(1.0) for p in params]) == [0]
            assert [s["step"].item() for s in states] == [1, 2]
            assert torch.equal(params[0], change(before))

    def test_a_gradient_whose_sign_is_still_to_be_applied_comes_back():
        plan, _, states, hyper = simple([(1,), (1,)])
        lazy = torch.ones(1, dtype=torch.complex64).mul(1j).conj().imag
        assert lazy.is_neg()
        assert plan.step(hyper, grads=[lazy, torch.ones(1)]) == [0]
        assert [s["step"].item() for s in states] == [0, 1]

    def test_the_same_gradient_for_two_parameters():
        plan, _, states, hyper = simple([(3,), (3,)])
        for _ in range(3):
            assert plan.step(hyper, grads=[torch.ones(3)] * 2) == []
        assert [s["step"].item() for s in states] == [3, 3]

    def test_a_gradient_of_another_dtype_moves_to_another_bucket():
        plan, _, states, hyper = simple([(40,), (50,)])
        assert plan.step(hyper, grads=[torch.ones(40, dtype=BF16), torch.ones(50)]) == []
        assert [s["step"].item() for s in states] == [1, 1]
        assert torch.equal(states[0]["exp_avg"], torch.full((40,), 0.1))
        assert len(plan.buckets) == 2

    def test_views_at_odd_addresses():
        base = torch.randn(5000, generator=torch.Generator().manual_seed(0))
        x = base.clone()[3:4500]
        state = {
            "step": torch.zeros((), dtype=F64),
            "exp_avg": torch.zeros(4501)[4:],
            "exp_avg_sq": torch.zeros(4497),
        }
        rule = METHODS["adaxw"].rule
        plan = Shares(rule, [x], [state], maximize=False, wake=True, rounding="nearest", seed=0, indices=[0],
                               offsets=[0], capturable=False)  # fmt: skip
        plan.step(METHODS["adaxw"].defaults, grads=[base[3:4500] * 2])
        want, params, _, hyper = simple([(4497,)])
        params[0].copy_(base[3:4500])
        want.step(hyper, grads=[base[3:4500] * 2])
        assert torch.equal(x, params[0])

    def test_more_tensors_than_lanes(monkeypatch):
        monkeypatch.setattr(fused_cuda, "LANES", 64)
        plan, _, states, hyper = simple([(2,)] * 130)
        plan.step(hyper, grads=[torch.full((2,), 1.0 + i) for i in range(130)])
        assert all(s["step"] == 1 for s in states)
        assert all(torch.allclose(s["exp_avg"], torch.tensor((1.0 + i) / 10)) for i, s in enumerate(states))

    def test_chunks_of_several_blocks(monkeypatch):
        monkeypatch.setattr(fused_cuda, "PROGRAMS", 2)
        plan, params, _, hyper = simple([(9000,), (70,)])
        assert plan.buckets[0].options["BLOCKS"] > 1
        plan.step(hyper, grads=[p * 3 for p in params])
        monkeypatch.undo()
        want, others, _, _ = simple([(9000,), (70,)])
        want.step(hyper, grads=[p * 3 for p in others])
        assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))

    def test_a_power_that_changes_in_place():
        table.check_changed_power()

    def test_a_gain_of_1_replaces_the_square():
        table.check_replaced_square()

    def test_the_power_0():
        table.check_no_power()

    @pytest.mark.parametrize("mode", ["nearest", "stochastic"])
    def test_a_compensation_left_from_kahan_is_left_alone(mode):
        results = []
        for left in (True, False):
            case = Case("adaxw", x=BF16, rounding=mode, sizes=((700,),))
            _, params, states, hyper = table.build(case)
            if left:
                states[0]["compensation"] = torch.full_like(params[0], 0.125)
            plan = Shares(METHODS["adaxw"].rule, params, states, maximize=False, wake=True, rounding=mode,
                                   seed=0, indices=[0], offsets=[0], capturable=False)  # fmt: skip
            plan.step(hyper, grads=[torch.ones_like(params[0])])
            results.append((params[0], states[0]))
        assert torch.equal(results[0][0], results[1][0])
        assert (results[0][1]["compensation"] == 0.125).all()

    def test_a_cautious_step_may_be_asked_to_be_fused():
        """The kernel of rows leaves cautious steps to torch's operations: no reason to refuse dense ones."""
        ends = []
        for options in ({"fused": True}, {"foreach": True}):
            p = torch.nn.Parameter(torch.linspace(-1, 1, 9, dtype=F64))
            optimizer = create("adamw", [p], lr=0.1, cautious=True, **options)
            for t in range(2):
                p.grad = torch.linspace(-1, 2, 9, dtype=F64) * (1 - 3 * t)
                optimizer.step()
            ends.append(p.detach())
        torch.testing.assert_close(*ends)

    def test_gradients_known_by_views_are_looked_at_once(monkeypatch):
        """Complex and sharded parameters: what the last gradients were found to be is believed of the next."""
        p = torch.nn.Parameter(torch.ones(5, dtype=torch.complex64))
        optimizer = create("adaxw", [p])
        looked = []
        real = fused_cuda.flat
        monkeypatch.setattr(fused_cuda, "flat", lambda *given: looked.append(1) or real(*given))
        for _ in range(3):
            p.grad = torch.ones_like(p)
            optimizer.step()
        assert looked == [1]
        p.grad = torch.ones(10, dtype=torch.complex64)[::2]
        optimizer.step()
        assert looked == [1, 1]
        assert optimizer.state[p]["step"].item() == 4

    def test_kahan_asks_nothing_of_float32():
        _, params, states, hyper = table.build(Case("adaxw", sizes=((7,),)))
        plan = Shares(METHODS["adaxw"].rule, params, states, maximize=False, wake=True, rounding="kahan",
                               seed=0, indices=[0], offsets=[0], capturable=False)  # fmt: skip
        assert plan.step(hyper, grads=[torch.ones(7)]) == []

    def test_the_guard_and_the_clip_do_something():
        """Each knob's effect is far above the table's tolerance."""
        updates = {}
        for wake, clip in ((True, None), (False, None), (False, 0.05)):
            case = Case("adax", {"clip_update": clip}, wake=wake, sizes=((700,),))
            plan, params, states, hyper = table.build(case)
            states[0]["exp_avg_sq"].zero_()
            states[0]["exp_avg"].zero_()
            states[0]["step"].fill_(50_000)
            before = params[0].clone()
            plan.step(hyper, grads=[torch.ones(700, dtype=F32)])
            updates[wake, clip] = (params[0] - before).abs().max().item() / hyper["lr"]
        assert updates[True, None] == pytest.approx(0.1, rel=1e-2)
        assert updates[False, None] > 100
        assert updates[False, 0.05] == pytest.approx(0.05, rel=1e-2)

    @pytest.mark.parametrize("late", [4, 9])
    @pytest.mark.parametrize("options", [{}, {"state_dtype": torch.uint8}], ids=str)
    def test_a_memory_that_freezes_guards_late_coordinates(options, late):
        x = torch.nn.Parameter(torch.zeros(2, 1))
        memory = Fading(0.9).freeze(5)
        optimizer = AdamW([x], lr=1.0, weight_decay=0.0, eps=1e-15, memory=memory, fused=True, **options)
        check_late_coordinate(x, optimizer, late, rel=0.05 if options else 1e-5)
