"""docs/distributed.md: its programs under its own commands, a worker killed in the middle, two meeting launchers."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from pages import command, write_files

pytestmark = pytest.mark.needs("torch")
feature = pytest.mark.feature
PAGE = "distributed.md"
TORCHRUN = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run"]


PORT = "29517"
"""The page's meeting point; the tests' is the system's choice."""


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return str(s.getsockname()[1])


def start(folder, name, port=PORT):
    words = [word.replace(PORT, port) for word in command(PAGE, name)]
    settings = dict(word.split("=") for word in words[: words.index("torchrun")])
    words = words[words.index("torchrun") :]
    return subprocess.Popen(
        [*TORCHRUN, *words[1:]],
        cwd=folder,
        env={
            **os.environ,
            **settings,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    try:
        output, _ = process.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        process.terminate()  # the launcher ends its workers
        pytest.fail(f"still running after ten minutes: {process.communicate()[0][-4000:]}")
    assert process.returncode == 0, output[-4000:]
    return output


def workers(launcher):
    """Processes of train.py that the launcher has started (from /proc: not every image has `ps`)."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == launcher.pid and b"train.py" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:  # it has ended
            continue
    return sorted(found)


@feature("PyTorch distributed", "a killed worker resumes to the same bits")
def test_a_killed_worker_costs_nothing_but_the_steps_since_the_last_checkpoint(tmp_path):
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    for folder in (calm, disturbed):
        folder.mkdir()
        write_files(PAGE, folder)
    output = finish(start(calm, "kill"))
    assert output.count("begins at step 0") == 2
    process = start(disturbed, "kill")
    while not (disturbed / "checkpoints-float32" / "40" / ".metadata").exists():
        assert process.poll() is None, process.communicate()[0][-4000:]
        time.sleep(0.001)
    os.kill(workers(process)[-1], signal.SIGKILL)
    output = finish(process)
    begun = [int(step) for step in re.findall(r"begins at step (\d+)", output)]  # two may share a line
    assert begun[:2] == [0, 0]
    assert len(begun) == 4
    assert 40 <= begun[2] < 120
    expected, found = (
        torch.load(folder / "checkpoints-float32" / "final.pt") for folder in (calm, disturbed)
    )
    assert expected.keys() == found.keys()
    for name in expected:
        assert torch.equal(expected[name], found[name]), name


def rewind(checkpoints, step=60):
    """Forget what was saved after a step, as if the run had been stopped there."""
    for path in checkpoints.iterdir():
        if path.is_dir() and int(path.name) > step:
            shutil.rmtree(path)
    (checkpoints / "final.pt").unlink()


@feature("PyTorch distributed", "FSDP2 with MixedPrecisionPolicy; resuming on another number of processes")
def test_mixed_precision_resumes_on_another_number_of_processes(tmp_path):
    write_files(PAGE, tmp_path)
    checkpoints = tmp_path / "checkpoints-mixed"
    assert finish(start(tmp_path, "mixed")).count("of 2 begins at step 0") == 2
    rewind(checkpoints)
    assert "rank 0 of 1 begins at step 60" in finish(start(tmp_path, "resize"))
    final = torch.load(checkpoints / "final.pt")
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in final.values())


@feature("PyTorch distributed", "FSDP2 with bf16 parameters and stochastic rounding")
def test_parameters_in_bf16_resume_to_the_same_bits_or_on_another_number_of_processes(tmp_path):
    write_files(PAGE, tmp_path)
    checkpoints = tmp_path / "checkpoints-bf16"
    finals = []
    for name, begins in (("bf16", 0), ("bf16", 60), ("resize-bf16", 60)):
        assert f"begins at step {begins}" in finish(start(tmp_path, name))
        finals.append(torch.load(checkpoints / "final.pt"))
        rewind(checkpoints)
    whole, resumed, resized = finals
    for name, p in whole.items():
        assert p.dtype == torch.bfloat16
        assert torch.equal(p, resumed[name]), name
        assert resized[name].dtype == torch.bfloat16
        assert resized[name].isfinite().all()


@feature("PyTorch distributed", "two launchers that meet (torchrun --nnodes=2)")
def test_two_launchers_meet_and_resume_what_one_began(tmp_path):
    """As two machines do; the checkpoint folder is shared, as theirs must be."""
    write_files(PAGE, tmp_path)
    port = free_port()
    output = "".join(finish(p) for p in [start(tmp_path, "nodes", port), start(tmp_path, "nodes", port)])
    assert sorted(re.findall(r"rank \d of \d begins at step \d+", output)) == [
        "rank 0 of 2 begins at step 0",
        "rank 1 of 2 begins at step 0",
    ]
    assert (tmp_path / "shared" / "checkpoints" / "final.pt").exists()


@feature("PyTorch distributed", "DDP")
@feature("PyTorch distributed", "ZeroRedundancyOptimizer")
def test_replicas_and_that_no_thread_outlives_their_group(tmp_path):
    """A thread of gloo that is left may abort the process while Python shuts down."""
    write_files(PAGE, tmp_path)
    with (tmp_path / "replicas.py").open("a") as program:
        program.write(
            "from pathlib import Path\n"
            "left = [path.read_text() for path in Path('/proc/self/task').glob('*/comm')]\n"
            "assert not any('gloo' in name for name in left), left\n"
        )
    finish(start(tmp_path, "replicas"))


def test_the_page_says_which_block_was_not_run():
    text = Path(__file__).parents[2].joinpath("docs", PAGE).read_text()
    assert text.count("```sh\n") == 1
    assert "has not been tested" in text
