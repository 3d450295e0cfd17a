"""Many processes with real process groups (gloo): the same numbers as one process, whatever the sharding."""

import atexit
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import distributed_program as program
import pytest
import torch

pytestmark = pytest.mark.needs("torch")
feature = pytest.mark.feature
TORCH = "PyTorch distributed"
FIRST = (
    "ddp",
    "fsdp2",
    "mixed",
    "tensor_parallel",
    "zero",
    "clipping",
    "stochastic",
    "offload",
    "full_state",
    "save",
)


def launch(processes, *arguments, **environment):
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone"]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [*command, f"--nproc-per-node={processes}", *map(str, arguments)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=900,  # a stop where something hangs; a loaded machine has time
    )
    told = [line for line in done.stderr.splitlines() if line.startswith("[rank")]
    assert done.returncode == 0, "\n".join(told[-30:]) or done.stderr[-4000:]


@cache
def ran(scenario, processes):
    """The scenario's findings; all that need a world of this size run in one launch."""
    folder = _folder()
    if processes != 2:
        ran("save", 2)
    path = folder / f"{scenario}_{processes}.pt"
    if not path.exists():
        names = (
            (*FIRST, "resume")
            if processes == 2
            else ("resume", "stochastic", "fsdp2", "hybrid")
            if processes == 4
            else ("resume",)
        )
        launch(processes, Path(program.__file__), folder, *names)
    return torch.load(path, weights_only=False)


@cache
def _folder():
    folder = Path(mkdtemp(prefix="adaxopt-distributed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def same(found, expected, tolerance=1e-11):
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            found[name], expected[name], rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@feature(TORCH, "DDP")
def test_replicas_under_ddp_stay_bitwise_equal_and_match_one_process():
    found = ran("ddp", 2)
    assert found["replicas_equal"]
    same(found["params"], program.reference())


@feature(TORCH, "FSDP2 (fully_shard)")
@pytest.mark.parametrize("processes", [2, 4])
def test_sharded_parameters_match_one_process_on_every_path(processes):
    found = ran("fsdp2", processes)
    stats = found.pop("stats")
    assert stats[0]["step"] == program.STEPS
    for pair in found.values():
        assert (
            max((pair["reference"][k] - v).abs().max() for k, v in program.full(program.model()).items())
            > 1e-3
        )
        same(pair["params"], pair["reference"])


@feature(TORCH, "Tensor and DTensor parameters in one group")
def test_plain_and_sharded_parameters_share_a_group():
    found = ran("mixed", 2)
    assert found["tensor_and_dtensor"]
    same(found["params"], program.reference())


@feature(TORCH, "tensor-parallel DTensors")
def test_tensor_parallel_parameters_match_one_process():
    found = ran("tensor_parallel", 2)
    assert "Shard(dim=0)" in found["placements"]["0.weight"]
    assert "Shard(dim=1)" in found["placements"]["2.weight"]
    same(found["params"], program.reference())


@feature(TORCH, "ZeroRedundancyOptimizer")
def test_zero_redundancy_matches_one_process_and_gathers_its_state():
    found = ran("zero", 2)
    same(found["params"], program.reference())
    net = program.model()
    import adaxopt

    optimizer = adaxopt.AdaXW(net.parameters(), **program.OPTIONS)
    optimizer.load_state_dict(found["state"])
    assert {float(entry["step"]) for entry in optimizer.state.values()} == {program.STEPS}
    assert len(optimizer.state) == len(list(net.parameters()))


@feature(TORCH, "gradient clipping on DTensors")
@pytest.mark.parametrize("whose", ["torch", "adaxopt"])
def test_clipping_by_the_total_norm_knows_shards(whose):
    found = ran("clipping", 2)
    assert min(found["reference"]["norms"]) > 0.05
    assert found[whose]["norms"] == pytest.approx(found["reference"]["norms"], rel=1e-10)
    # torch scales by bound/(norm + 1e-6) in its own order: a little less exact than the plain step
    for name, expected in found["reference"]["params"].items():
        torch.testing.assert_close(found[whose]["params"][name], expected, rtol=1e-9, atol=1e-9)


@feature(TORCH, "stochastic rounding independent of sharding")
@pytest.mark.parametrize("processes", [2, 4])
def test_a_shard_rounds_as_the_whole_would(processes):
    found = ran("stochastic", processes)
    assert torch.equal(found["whole"], found["part"])


@feature(TORCH, "distributed checkpoint saved at 2, resumed at 1, 2 and 4 processes")
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_a_checkpoint_of_two_processes_goes_on_in_any_number(processes):
    undisturbed = ran("save", 2)["params"]
    same(undisturbed, program.reference())
    found = ran("resume", processes)
    assert sorted(found) == ["flat_0", "flat_3", "plain_0", "plain_3"]
    for params in found.values():
        same(params, program.reference())


@feature(TORCH, "state dicts of optimizers never stepped")
def test_saving_an_optimizer_that_never_stepped_leaves_its_time_at_zero():
    """torch makes the missing state by a step of lr 0 on gradients of 0: that one does not count."""
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

    import adaxopt

    for options in ({}, {"wake": False}, {"foreach": True}, {"lr": torch.tensor(1e-2)}, {"capturable": True}):
        net = program.model()
        optimizer = adaxopt.AdaXW(net.parameters(), **{**program.OPTIONS, **options})
        state = get_optimizer_state_dict(net, optimizer)
        assert {float(entry["step"]) for entry in state["state"].values()} == {0.0}
        again = adaxopt.AdaXW(net.parameters(), **{**program.OPTIONS, **options})
        set_optimizer_state_dict(net, again, state)
        program.train(net, again, program.batches(), whole=True)
        same(program.full(net), program.reference(**options))


@feature(TORCH, "whole state dict into a sharded optimizer")
def test_a_state_dict_of_one_process_goes_into_a_sharded_optimizer():
    found = ran("full_state", 2)
    same(found["params"], program.reference())
    assert found["names"] == sorted(name for name, _ in program.model().named_parameters())


@feature(TORCH, "hybrid sharding (a mesh of two dimensions); whole state broadcast from rank 0")
def test_copies_of_shards_match_one_process_and_rank_0_gives_its_state_to_all():
    found = ran("hybrid", 4)
    assert found["placements"] == "(Replicate(), Shard(dim=0))"
    same(found["params"], program.reference())
    same(found["broadcast"], program.reference())


@feature(TORCH, "state offloaded to the host and brought back")
def test_state_taken_away_and_brought_back_changes_nothing():
    same(ran("offload", 2)["params"], program.reference())


KERNEL = ("fsdp2", "mixed", "tensor_parallel", "stochastic")


def kernel_serves(found):
    """The scenarios of KERNEL: the numbers of one process's foreach step, by launches of the kernel on local parts."""
    stats = found["fsdp2"].pop("stats")
    assert stats[0]["step"] == program.STEPS
    for name, pair in found["fsdp2"].items():
        assert (pair["kernels"] > 0) == (name not in ("foreach", "loop")), name
        same(pair["params"], pair["reference"], 1e-9)
    for name in ("mixed", "tensor_parallel"):
        assert found[name]["kernels"] > 0, name
        same(found[name]["params"], program.reference(), 1e-9)
    assert min(found["stochastic"]["kernels"]) > 0
    assert torch.equal(found["stochastic"]["whole"], found["stochastic"]["part"])


def load(folder, name, processes):
    return torch.load(folder / f"{name}_{processes}.pt", weights_only=False, map_location="cpu")


@pytest.mark.needs("triton")
@feature(TORCH, "the fused kernel on local shards (interpreted on CPU)")
def test_the_kernel_steps_local_shards(tmp_path):
    launch(2, Path(program.__file__), tmp_path, *KERNEL, TRITON_INTERPRET="1")
    kernel_serves({name: load(tmp_path, name, 2) for name in KERNEL})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@feature(TORCH, "NCCL: all of the above, and the fused kernel on local shards")
def test_on_gpus_with_nccl(tmp_path):
    """One process per GPU: the compiled kernel, and every scenario again."""
    for processes in sorted({1, torch.cuda.device_count()}):
        folder = tmp_path / str(processes)
        folder.mkdir()
        launch(processes, Path(program.__file__), folder, *FIRST, "resume", ADAXOPT_DEVICE="cuda")
        kernel_serves({name: load(folder, name, processes) for name in KERNEL})
        for name in ("ddp", "zero", "offload", "full_state", "save"):
            same(load(folder, name, processes)["params"], program.reference(), 1e-9)
        for params in load(folder, "resume", processes).values():
            same(params, program.reference(), 1e-9)
        found = load(folder, "clipping", processes)
        for whose in ("torch", "adaxopt"):
            assert found[whose]["norms"] == pytest.approx(found["reference"]["norms"], rel=1e-9)
            same(found[whose]["params"], found["reference"]["params"], 1e-8)
