"""The rows' kernel on a GPU: the interpreter's tables again, and what only a GPU can show."""

from __future__ import annotations

import pytest
import torch

from adaxopt import AdaXW, create

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
pytest.importorskip("triton", reason="the kernel needs Triton")

import rows_table as table  # noqa: E402
import waits  # noqa: E402
from kernel_table import BF16, Case  # noqa: E402
from rows_table import coo, served  # noqa: E402


@pytest.mark.parametrize("case", table.TABLE, ids=str)
def test_one_step_is_the_rule(case):
    table.check(case, device="cuda")


WIDTHS = [(9,), (9, 1), (9, 3), (9, 2, 20), (9, 64), (9, 300), (9, 512), (9, 768), (9, 1100), (9, 4096)]


@pytest.mark.parametrize("shape", WIDTHS)
@pytest.mark.parametrize("case", [Case("adaxw"), Case("amsgradw", x=BF16, state=BF16, rounding="stochastic")])
def test_rows_of_any_width(shape, case):
    table.check(case, shape, device="cuda")


@pytest.mark.parametrize("method", table.ALL)
def test_rows_that_are_named_now_and_then(method):
    table.check_walks_agree(method=method, steps=40, device="cuda")


def test_kernels_are_launched_with_bare_numbers():
    """Triton's own call, which costs the host more, is not taken."""
    _, optimizer = table.walk(True, device="cuda")
    launches = [pair for bucket in table.buckets(optimizer) for pair in bucket.launches.values()]
    assert launches
    assert all(launch.proven for pair in launches for launch in pair)


def many(seed=0, coalesced=False):
    """A table of 50,000 rows, and what a batch of words makes of it: 4,096 names, many of them twice."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.nn.Parameter(torch.randn(50_000, 256, generator=generator).cuda())
    rows = torch.randint(0, 9_000, (4_096,), generator=generator).cuda()
    p.grad = coo(rows, torch.randn(4_096, 256, generator=generator).cuda(), p.shape)
    if coalesced:
        p.grad = p.grad.coalesce()
    return p


@pytest.mark.parametrize("method", ["adaxw", "adam", "amsgrad"])
def test_many_rows_agree_with_row_step(method):
    ends = []
    for on in (True, False):
        with table.switched(on):
            p = many()
            optimizer = create(method, [p], lr=1e-2)
            for t in range(5):
                p.grad = coo(p.grad._indices()[0].add(t * 13), p.grad._values() * 0.9, p.shape)
                optimizer.step()
            assert bool(served(optimizer)) == on
            ends.append((p, *optimizer.state[p].values()))
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6)
    assert torch.equal(ends[0][-1], ends[1][-1])  # row_step


def test_a_host_far_ahead_gives_the_same_bits():
    """Another lr every step, several times around the ring of slots, while the device sleeps."""
    ends = []
    for ahead in (False, True):
        p = many(coalesced=True)
        optimizer = AdaXW([p])
        for t in range(100):
            if ahead and t % 10 == 0:
                torch.cuda._sleep(20_000_000)
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 + t % 7)
            optimizer.step()
            if not ahead:
                torch.cuda.synchronize()
        ends.append((p.detach(), *optimizer.state[p].values()))
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_no_step_waits_for_the_device():
    """Where gradients are coalesced already: torch waits to learn how many rows there are."""
    p = many(coalesced=True)
    optimizer = AdaXW([p])
    for _ in range(3):
        optimizer.step()
    torch.cuda.synchronize()
    optimizer.grad_scale, optimizer.found_inf = (torch.full((), x, device="cuda") for x in (2.0, 0.0))
    optimizer.step()
    with waits.refused():
        for t in range(5):
            optimizer.param_groups[0]["lr"] = 1e-3 * t
            optimizer.step()
    assert served(optimizer)
