"""`adax compare --on ray` on a local Ray of two nodes, by the commands of its page; a worker killed on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pages import command

pytestmark = pytest.mark.needs("ray", "tyro")
feature = pytest.mark.feature
PAGE = "distributed.md"
SCRIPTS = Path(sys.executable).parent


def environment(folder):
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "RAY_TMPDIR": str(folder),
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }


def ended(process):
    """Ask a blocking `ray start` to end, and with it the processes that it started."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def nodes():
    """Two nodes, each of one CPU. Ray's sockets need a short path."""
    import shutil
    from tempfile import mkdtemp

    folder = Path(mkdtemp(prefix="adax-ray-", dir="/tmp"))
    started = []
    try:
        for name in ("head", "node"):
            words = command(PAGE, name)
            process = subprocess.Popen(
                [str(SCRIPTS / words[0]), *words[1:], "--object-store-memory=100000000"],
                env=environment(folder),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            started.append(process)
            said = []
            for line in process.stdout:
                said.append(line)
                if "Ray runtime started" in line:
                    break
            else:
                pytest.fail("".join(said))
        yield folder
    finally:
        for process in reversed(started):
            ended(process)
        shutil.rmtree(folder, ignore_errors=True)


def adax(folder, out, *more, drop=()):
    words = [w for w in command(PAGE, "compare")[1:] if not any(w.startswith(d) for d in drop)]
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "adaxopt.lab.cli",
            *words,
            "--out",
            str(out),
            "--study",
            "s",
            *more,
        ],
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, code=0):
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == code, errors[-3000:]
    return output, errors


def runs(out):
    """Everything of a store that does not tell time or place."""
    from adaxopt.lab.store import load_runs

    timing = ("seconds", "step_seconds")
    return {
        r.name: (
            r.spec,
            [{k: v for k, v in row.items() if "second" not in k} for row in r.metrics],
            {k: v for k, v in r.done.items() if k not in timing and "second" not in k},
        )
        for r in load_runs(out)
    }


@pytest.fixture(scope="module")
def here(nodes, tmp_path_factory):
    """What one machine finds."""
    out = tmp_path_factory.mktemp("here")
    finish(adax(nodes, out, drop=("--on", "ray,")))
    return out


@feature("Ray", "adax compare --on ray: two nodes, the records of one machine")
def test_two_nodes_find_what_one_machine_finds(nodes, here, tmp_path):
    from adaxopt.lab.store import load_runs

    output, _ = finish(adax(nodes, tmp_path))
    assert "adaxw" in output
    assert len(runs(here)) == 8
    assert runs(tmp_path) == runs(here)
    assert len({r.env["node"] for r in load_runs(tmp_path)}) == 2
    began = time.monotonic()
    finish(adax(nodes, tmp_path))  # nothing is run again
    assert runs(tmp_path) == runs(here)
    assert time.monotonic() - began < 60


def workers():
    """Processes of Ray that carry out a run of ours just now."""
    found = []
    for line in subprocess.run(
        ["ps", "-eo", "pid=,args="], capture_output=True, text=True
    ).stdout.splitlines():
        pid, args = line.split(None, 1)
        if args.startswith("ray::adax run"):
            found.append(int(pid))
    return found


@feature("Ray", "a lost worker is replaced")
@pytest.mark.parametrize("shared", [False, True])
def test_a_killed_worker_costs_time_and_nothing_else(nodes, tmp_path, shared):
    longer = ("--epochs", "40", "--tune", "0", "--checkpoint-seconds", "0.2")
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    finish(adax(nodes, calm, *longer, drop=("--on", "ray,")))
    on = "ray,address=127.0.0.1:6399,retries=3" + (",shared=true" if shared else "")
    process = adax(nodes, disturbed, *longer, "--on", on, drop=("--on", "ray,"))
    while not workers():
        assert process.poll() is None, process.communicate()[1][-3000:]
        time.sleep(0.05)
    time.sleep(1.0)
    killed = workers()
    assert killed
    os.kill(killed[0], signal.SIGKILL)
    finish(process)
    assert len(runs(calm)) == 4
    assert runs(disturbed) == runs(calm)


@feature("Ray", "one line where no cluster answers")
@pytest.mark.parametrize(
    ("on", "line"),
    [
        ("ray,address=127.0.0.1:1", "no Ray cluster at '127.0.0.1:1'"),
        ("slurm", "unknown --on 'slurm'; known are ray"),
        ("ray,cpu=2", "unknown setting of --on ray 'cpu'; known are address, cpus"),
        ("ray,retries=-1", "--on ray: retries=-1 must be a number >= 0"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, on, line):
    process = adax(tmp_path, tmp_path, "--on", on, drop=("--on", "ray,"))
    _, errors = finish(process, code=2)
    assert line in errors
    assert "Traceback" not in errors


def test_the_record_names_its_node(nodes, tmp_path):
    finish(adax(nodes, tmp_path, "--seeds", "1", "--tune", "0"))
    (some, *_) = (tmp_path / "s").glob("*/env.json")
    assert len(json.loads(some.read_text())["node"]) > 10
