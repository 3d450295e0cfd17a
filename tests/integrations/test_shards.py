"""Parts of parameters: placements, uneven and empty shards, ZeRO; the numbers of whole tensors on one process."""

from pathlib import Path

import pytest
import shards_program as program
import torch
from test_distributed import TORCH, launch

import adaxopt

pytestmark = pytest.mark.needs("torch")
feature = pytest.mark.feature
SCENARIOS = (
    "narrow",
    "layers",
    "refused",
    "warm_up",
    "zero_warm_up",
    "zero_rounding",
    "clipping",
    "eight",
    "mistakes",
)


@pytest.fixture(scope="module", params=[2, 3, 4])
def found(request, tmp_path_factory):
    """{scenario: what every rank has found}, all from one launch."""
    folder = tmp_path_factory.mktemp("shards")
    launch(request.param, Path(program.__file__), folder, *SCENARIOS)
    return load(folder, request.param)


def load(folder, processes, names=SCENARIOS):
    return {name: torch.load(folder / f"{name}_{processes}.pt", weights_only=False) for name in names}


@feature(TORCH, "tensor-parallel DTensors")
def test_sixteen_bit_parameters_step_in_every_placement(found):
    for rank in found["narrow"]:
        assert len(rank) == 2 * len(program.PLACEMENTS) * len(program.NARROW)
        assert all(rank.values()), rank
    for rank in found["layers"]:
        for name in ("tensor parallel", "fully_shard"):
            assert rank[name] == [3.0] * 4, name
            assert rank[f"{name} moved"], name


def refuses(found):
    for rank in found["refused"]:
        for name in program.REFUSED:
            message, unchanged, steps, has_state = rank[name]
            assert "(Shard(dim=1),)" in message, name
            assert "use Shard(0)" in message, name
            assert ("rounding='stochastic'" if "state" not in name else "state_dtype=None") in message, name
            assert (unchanged, steps, has_state) == (True, 1.0, False), name


def test_what_cannot_be_rounded_is_refused_on_every_rank_before_anything_has_changed(found):
    refuses(found)


@feature(TORCH, "warm-up from lr 0 with uneven and empty shards")
def test_ranks_without_a_gradient_count_the_first_step_too(found):
    for rank in found["warm_up"]:
        for name, pair in rank.items():
            assert pair["steps"] == [5.0, 5.0], name
            torch.testing.assert_close(*pair["params"], rtol=1e-12, atol=1e-12)
    assert all(all(rank) for rank in found["zero_warm_up"])


@feature(TORCH, "stochastic rounding independent of sharding")
def test_rounding_under_zero_does_not_depend_on_the_number_of_processes(found):
    for rank in found["zero_rounding"]:
        assert all(rank.values()), rank


@feature(TORCH, "8-bit state of sharded parameters")
def test_eight_bit_state_does_not_depend_on_the_number_of_processes(found):
    for rank in found["eight"]:
        assert len(rank) == 6 * len(program.EIGHT)
        assert all(rank.values()), rank


def test_mistakes_that_gave_wrong_numbers_are_corrected_or_named(found):
    for rank in found["mistakes"]:
        assert len(rank) == 7
        assert all(rank.values()), rank


@feature(TORCH, "gradient clipping on DTensors")
def test_clipping_takes_every_mixture_of_gradients(found):
    for rank in found["clipping"]:
        for name, (norm, expected, pairs) in rank.items():
            torch.testing.assert_close(
                norm, expected, rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}"
            )
            for mine, other in pairs:
                torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


@pytest.mark.needs("triton")
@feature(TORCH, "the fused kernel on local shards (interpreted on CPU)")
def test_the_kernel_rounds_and_refuses_the_same(tmp_path):
    names = ("narrow", "refused", "zero_rounding", "eight")
    launch(2, Path(program.__file__), tmp_path, *names, TRITON_INTERPRET="1")
    found = load(tmp_path, 2, names)
    assert all(all(rank.values()) for name in ("narrow", "zero_rounding", "eight") for rank in found[name])
    refuses(found)


def test_a_first_step_at_lr_0_counts_whatever_its_gradients():
    """Only torch.distributed.checkpoint's own call does not; see "state dicts of optimizers never stepped"."""
    for g in (0.0, 1.0):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = adaxopt.AdaXW([p], lr=0.0)
        p.grad = torch.full((3,), g)
        optimizer.step()
        assert float(optimizer.state[p]["step"]) == 1.0
