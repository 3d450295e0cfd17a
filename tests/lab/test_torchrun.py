"""Two processes by torchrun (gloo): the parameters of one process with the whole batch, and exact resumption, also
after SIGKILL to one of them.

Under DistributedDataParallel each process's norms have the statistics of its own share of the batch. The one process
that it is compared with therefore has `groups=2`: norms with the statistics of each half, everything else of the whole
batch. In float64 both agree to rounding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchrun_worker
from image_sets import make, small, tiny

from adaxlab import distributed, driver, store
from adaxlab.errors import LabError
from adaxlab.execute import torchrun
from adaxlab.imagenet.train import Training
from adaxlab.settings import ExecutionConfig, Settings
from adaxlab.signals import Stop

HERE = Path(__file__).parent


def together(*words):
    """The exit code of two processes by torchrun, and what they said."""
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[1] / 'src'}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    with subprocess.Popen(
        [*command, *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as both:
        try:
            out, err = both.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            both.terminate()  # torchrun ends its processes then; killed, it would leave them behind
            raise
    return both.returncode, out, err


def alone(images, out, groups, monkeypatch):
    """The run in this process: its record and the tensors it ended with."""
    monkeypatch.setattr(Training, "done", torchrun_worker.done)
    torchrun_worker.ENDS.clear()
    (record,) = driver.carry_out(torchrun_worker.small(images, groups), out)
    return record, torchrun_worker.ENDS[0]


def curve(run):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in run.metrics]


def distance(one, other):
    return max((a - b).abs().max().item() for a, b in zip(one, other, strict=True))


@pytest.mark.other_process
def test_two_processes_are_one_with_the_whole_batch(tmp_path, monkeypatch):
    images = small(tmp_path / "set")
    worker = HERE / "torchrun_worker.py"
    code, _, said = together(worker, images, tmp_path, "kill")
    assert code, said
    assert "SIGKILL" in said
    (left,) = (tmp_path / "killed").glob("*/*/checkpoint.pt")
    assert torch.load(left, weights_only=True)["at"][0] == 1  # in the second of two epochs
    code, _, said = together(worker, images, tmp_path)
    assert code == 0, said[-3000:]
    ends = torch.load(tmp_path / "ends.pt", weights_only=True)
    runs = {name: store.load_runs(tmp_path / name)[0] for name in ("whole", "killed", "pieces")}
    for again in ("killed", "pieces"):
        assert all(torch.equal(a, b) for a, b in zip(ends["whole"], ends[again], strict=True)), again
        assert curve(runs[again]) == curve(runs["whole"])
        assert runs[again].done["model_sha256"] == runs["whole"].done["model_sha256"]
    assert not list(tmp_path.rglob("checkpoint.pt"))

    record, one = alone(str(images), tmp_path / "one", 2, monkeypatch)
    assert distance(ends["whole"], one) < 1e-10
    assert (runs["whole"].done["processes"], record.done["processes"]) == (2, 1)
    assert curve(runs["whole"]) == curve(record)
    _, plain = alone(str(images), tmp_path / "plain", 1, monkeypatch)
    assert distance(ends["whole"], plain) > 1e-4


def test_the_command_under_torchrun_decodes_once_and_prints_one_table(tmp_path):
    tiny(tmp_path / "set", make())
    sizes = "--seeds 1 --epochs 1 --batch-size 6 --set size=16 stored=16 width=4 precision=fp32"
    words = (
        f"-m adaxlab.reproduce imagenet/tiny --data {tmp_path / 'set'} --out {tmp_path / 'runs'} --device cpu"
    )
    code, out, said = together(*words.split(), *sizes.split())
    assert code == 0, said[-3000:]
    assert out.count("| adaxw |") == 1
    assert said.count("decoded 30 of 30 images") == 1
    assert len(store.load_runs(tmp_path / "runs")) == 5
    code, _, said = together(*words.split(), "--jobs", "2", *sizes.split())
    assert code
    assert "torchrun is for studies such as imagenet/tiny, and with --jobs 1" in said


def test_processes_must_be_joined_and_the_task_must_train_itself(tmp_path, monkeypatch):
    spec = {"study": "s", "task": "digits", "task_options": {}, "optimizer": "adaxw"}
    with pytest.raises(LabError, match="task digits: has no `training`, which the executor torchrun needs"):
        list(torchrun.execute([spec], tmp_path, Settings(), driver.Silent(), Stop()))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(LabError, match=r"call this inside adaxlab.distributed.joined"):
        list(torchrun.execute([spec], tmp_path, Settings(), driver.Silent(), Stop()))
    with (
        pytest.raises(LabError, match="WORLD_SIZE=2 without LOCAL_RANK: start the processes with torchrun"),
        distributed.joined("cpu"),
    ):
        pass


def test_execution_options():
    assert ExecutionConfig.parse({"compiled": True, "graph": None}) == ExecutionConfig(compiled=True)
    with pytest.raises(LabError, match="unknown execution option 'speed'; known are channels_last, graph"):
        ExecutionConfig.parse({"speed": 1})
    with pytest.raises(LabError, match="--execution graph=1: must be true or false or none"):
        ExecutionConfig.parse({"graph": 1})
    assert Settings(execution={"graph": False}).execution.graph is False
