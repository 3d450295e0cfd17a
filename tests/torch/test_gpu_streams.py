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


def free(places):
    """Those of these addresses that the caching allocator may give to the next who asks."""
    gaps = []
    for segment in torch.cuda.memory_snapshot():
        at = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive":
                gaps.append(range(at, at + block["size"]))
            at += block["size"]
    return {place for place in places if any(place in gap for gap in gaps)}


@pytest.mark.parametrize("moved", [True, False], ids=["on another stream", "on its own"])
def test_tables_that_a_step_still_reads_are_not_given_away(moved):
    """Dropped while a step waits on another stream, they stay; on their own stream they may go, in its order."""
    stream = torch.cuda.Stream()
    params, optimizer = stepped_beside(stream)
    twin = parameters(SHAPES)
    alone = AdaXW(twin, fused=True)
    gradients(twin, 0)
    for _ in range(3):
        alone.step()
    gc.collect()  # now, so that the next takes less time than the device sleeps
    with torch.cuda.stream(torch.cuda.current_stream() if moved else stream):
        torch.cuda._sleep(2_000_000_000)
        optimizer.step()
        stepped = torch.cuda.Event()
        stepped.record()
    places = {t.data_ptr() for one in kernels(optimizer) for t in one._tables()}
    assert len(places) == 6
    assert not free(places)
    del optimizer
    gc.collect()
    given = free(places)
    assert not stepped.query(), "the device slept too short a time to show anything"
    assert given == (set() if moved else places)
    torch.cuda.synchronize()
    torch.empty(1, device="cuda")  # the allocator looks for what has ended when it is asked
    assert free(places) == places
    assert same(params, twin)


def test_steps_in_turn_on_two_streams_are_those_of_one():
    """Each waits for the last on the device, not on the host, which goes on to tell of other learning rates."""
    here, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    params, optimizer = stepped_beside(beside, 1)
    twin = parameters(SHAPES)
    alone = AdaXW(twin, fused=True)
    gradients(twin, 0)
    alone.step()
    for t in range(1, 100):
        for each in (optimizer, alone):
            each.param_groups[0]["lr"] = 1e-3 * (1 + t % 7)
        alone.step()
        now, last = (beside, here) if t % 2 else (here, beside)
        now.wait_stream(last)
        with torch.cuda.stream(now):
            optimizer.step()
    torch.cuda.synchronize()
    assert same(params, twin)
