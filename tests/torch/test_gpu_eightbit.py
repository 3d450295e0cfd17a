"""8-bit state and 24-bit weights by the compiled kernel on a GPU: the interpreter's tables again, graphs, memory."""

from __future__ import annotations

import pytest
import torch

from adaxopt import AdamW, AdaXW, float32_weights, step_in_backward

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
pytest.importorskip("triton", reason="the kernel needs Triton")

import eightbit_table as table  # noqa: E402
import waits  # noqa: E402
from eightbit_table import BF16, F32, U8  # noqa: E402

OURS = {"state_dtype": U8, "rounding": "24bit"}


def everything(optimizer, params):
    return [
        {"x": p.detach().clone(), **{k: v.clone() for k, v in optimizer.state[p].items()}} for p in params
    ]


def same(one, other):
    return all(torch.equal(a[k], b[k]) for a, b in zip(one, other, strict=True) for k in a)


def test_codes_are_those_of_the_reference():
    """The device's roots are approximate: a code may differ where a draw falls on the border."""
    table.check_codes("cuda", equal=0.9985, names=("adaxw",))


@pytest.mark.parametrize("case", table.GPU, ids=str)
def test_a_step_is_the_rule(case):
    table.check(case, "cuda")


def test_every_code_is_read_and_written_exactly():
    table.check_every_code("cuda")


def test_the_foreach_form_writes_the_same():
    table.check_same_as_foreach("cuda", equal=0.99)


def test_a_frozen_memory_keeps_its_codes():
    table.check_frozen("cuda")


def test_a_coordinate_that_is_not_finite_is_lost_alone():
    table.check_lost("cuda")


def test_a_large_gradient_late_in_training_is_not_lost():
    table.check_large("cuda")


def test_gradients_are_unscaled_inside():
    table.check_scaled("cuda")


def test_a_graph_steps_as_eager_steps_do():
    ends = []
    for captured in (False, True):
        params = table.parameters(BF16, "cuda")
        optimizer = AdaXW(params, lr=1e-3, capturable=True, **OURS)
        table.gradients(params, 0)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                optimizer.step()
        torch.cuda.current_stream().wait_stream(stream)
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                optimizer.step()
        for _ in range(5):
            graph.replay() if captured else optimizer.step()
        ends.append(everything(optimizer, params))
    assert same(*ends)
    assert ends[0][0]["step"] == 8


def test_no_step_waits_for_the_device():
    params = table.parameters(BF16, "cuda")
    optimizer = AdamW(params, lr=1e-3, fused=True, **OURS)
    table.gradients(params, 0)
    optimizer.step()
    with waits.refused():
        for _ in range(3):
            optimizer.step()


@pytest.mark.parametrize("dtype", [F32, BF16])
def test_a_large_tensor_in_whole_blocks_and_its_bytes(dtype):
    """2^24 + 5 elements: every warp, and a last group of five; the steps of a run in float32 state beside it."""
    count = (1 << 24) + 5
    ends = {}
    for name, options in {"8": OURS, "32": {}}.items():
        x = torch.randn(count, generator=torch.Generator("cuda").manual_seed(0), device="cuda")
        p = torch.nn.Parameter(x.to(dtype, copy=True) if name == "8" else x.to(dtype).to(F32, copy=True))
        optimizer = AdamW([p], lr=1e-3, fused=True, **options)
        generator = torch.Generator("cuda").manual_seed(1)
        for _ in range(20):
            g = torch.randn(count, generator=generator, device="cuda").to(dtype)
            p.grad = g.to(p.dtype)
            optimizer.step()
        table.all_by_kernel(optimizer)
        ends[name] = float32_weights(optimizer)[p]
        if name == "8":
            sizes = [t.numel() * t.itemsize for t in optimizer.state[p].values()]
            assert sum(sizes) / count < (2.07 if dtype == F32 else 3.07)
    apart = (ends["8"] - ends["32"]).double()
    moved = (ends["32"] - x.to(dtype).float()).double()
    assert apart.square().mean() < 0.01 * moved.square().mean()
    assert abs(apart.mean()) < 2e-3 * moved.square().mean().sqrt()


def test_gradient_release_and_a_round_trip_through_a_file(tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 8)).to(
        "cuda", BF16
    )
    optimizer = AdaXW(model.parameters(), lr=1e-3, **OURS)
    step_in_backward(optimizer)
    x = torch.randn(32, 64, device="cuda", dtype=BF16)
    for _ in range(3):
        model(x).square().mean().backward()
    params = list(model.parameters())
    assert all(optimizer.state[p]["step"] == 3 for p in params)
    torch.save(optimizer.state_dict(), tmp_path / "state.pt")
    again = AdaXW(model.parameters(), lr=1e-3)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True, map_location="cpu"))
    assert same(everything(optimizer, params), everything(again, params))
