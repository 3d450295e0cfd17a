"""Steps on several CUDA streams: what a launch reads by bare address outlives its plan."""

from __future__ import annotations

import gc

import pytest
import torch
from test_gpu import SHAPES, gradients, kernels, parameters, same

from adaxopt import AdaXW

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def stepped_beside(stream, steps=2):
    """An optimizer whose tables were made on `stream`."""
    params = parameters(SHAPES)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        optimizer = AdaXW(params, fused=True)
        gradients(params, 0)
        for _ in range(steps):
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    return params, optimizer


@pytest.mark.parametrize("moved", [True, False], ids=["on another stream", "on its own"])
def test_tables_that_a_step_still_reads_are_not_given_away(moved):
    """Dropped while a step waits on another stream, they stay; on their own stream they may go, in its order."""
    stream = torch.cuda.Stream()
    params, optimizer = stepped_beside(stream)
    with torch.cuda.stream(torch.cuda.current_stream() if moved else stream):
        torch.cuda._sleep(400_000_000)
        optimizer.step()
    tables = [t for kernel in kernels(optimizer) for bucket in kernel.buckets for t in bucket._tables()]
    places = {t.data_ptr() for t in tables}
    sizes = [t.nbytes for t in tables]
    del tables, optimizer
    gc.collect()
    with torch.cuda.stream(stream):
        taken = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sizes * 4]
    given = places & {t.data_ptr() for t in taken}
    assert bool(given) == (not moved)
    torch.cuda.synchronize()
    assert all(p.isfinite().all() for p in params)


def test_steps_in_turn_on_two_streams_are_those_of_one():
    stream = torch.cuda.Stream()
    params, optimizer = stepped_beside(stream, 1)
    twin = parameters(SHAPES)
    alone = AdaXW(twin, fused=True)
    gradients(twin, 0)
    for t in range(20):
        if t:
            with torch.cuda.stream(stream if t % 2 else torch.cuda.current_stream()):
                optimizer.step()
            torch.cuda.synchronize()
        alone.step()
    assert same(params, twin)
