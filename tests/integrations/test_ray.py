"""`adax compare --on ray` on a local Ray of two nodes, by the commands of its page; a worker killed on the way."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest
from pages import command

pytestmark = pytest.mark.needs("ray", "tyro")
feature = pytest.mark.feature
PAGE = "distributed.md"
PORT = "6399"
"""The page's; the tests' is the system's choice, so that no other cluster of this machine is met."""
SCRIPTS = Path(sys.executable).parent


def environment(folder):
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "RAY_TMPDIR": str(folder),
        "TMPDIR": str(folder),  # a killed worker leaves its own there
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }


OWN = ("--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0")
"""Little memory, and workers' ports from the system: by default two nodes on one machine draw from one range."""
LATE = "The current node timed out during startup"
"""Ray 2.60 gives a node 30 seconds to appear (a constant in its node.py; two busy cores need 40), then gives up."""


class Node:
    """A blocking `ray start`, by the words of the page; `said` is what it printed."""

    def __init__(self, folder, log, words):
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [str(SCRIPTS / words[0]), *words[1:], *OWN],
                env=environment(folder),
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self):
        return self.log.read_text()

    def started(self):
        """Wait until it runs (True) or has ended, by itself or because it never said so (False)."""
        late = time.monotonic() + 300
        while "Ray runtime started" not in self.said or "ray stop" not in self.said:
            if self.process.poll() is not None:
                return False
            if time.monotonic() > late:
                self.end()
                return False
            time.sleep(0.1)
        return True

    def end(self):
        """Ask it to end, and with it the processes that it started."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ours(folder):
    """Processes of the cluster in this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"RAY_TMPDIR={folder}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


class Cluster(NamedTuple):
    folder: Path
    address: str


@pytest.fixture(scope="module")
def nodes():
    """Two nodes, each of one CPU, at a port that the system chose. Ray's sockets need a short path."""
    folder = Path(mkdtemp(prefix="adax-ray-", dir="/tmp"))
    running = []

    def start(words):
        for attempt in range(4):  # again only for LATE
            node = Node(folder, folder / f"{len(running)}-{attempt}.log", words)
            running.append(node)
            if node.started():
                return node
            if LATE not in node.said:
                break
        return pytest.fail(node.said)

    try:
        head = start([word.replace(PORT, "0") for word in command(PAGE, "head")])
        port = re.search(r"ray start --address='[^']*:(\d+)'", head.said)[1]
        start([word.replace(PORT, port) for word in command(PAGE, "node")])
        yield Cluster(folder, f"127.0.0.1:{port}")
    finally:
        for node in reversed(running):
            node.end()
        for pid in ours(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def adax(cluster, out, *more, drop=()):
    words = [w for w in command(PAGE, "compare")[1:] if not any(w.startswith(d) for d in drop)]
    words = [word.replace(f"127.0.0.1:{PORT}", cluster.address) for word in words]
    return subprocess.Popen(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "adaxlab.cli",
            *words,
            "--out",
            str(out),
            "--study",
            "s",
            *more,
        ],
        env=environment(cluster.folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process, code=0):
    try:
        output, errors = process.communicate(timeout=600)  # a stop where something hangs
    finally:
        process.kill()
    assert process.returncode == code, errors[-3000:]
    return output, errors


def runs(out):
    """Everything of a store that does not tell time or place: nor whether a run was resumed from a checkpoint."""
    from adaxlab.store import load_runs

    return {
        r.name: (
            r.spec,
            [{k: v for k, v in row.items() if "second" not in k} for row in r.metrics],
            {k: v for k, v in r.done.items() if k != "sessions" and "second" not in k},
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
    from adaxlab.store import load_runs

    output, _ = finish(adax(nodes, tmp_path))
    assert "adaxw" in output
    assert len(runs(here)) == 8
    assert runs(tmp_path) == runs(here)
    assert len({r.env["node"] for r in load_runs(tmp_path)}) == 2  # a record names its node
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json*")}
    finish(adax(nodes, tmp_path))  # nothing is run again
    for path in written:
        assert path.name == "study.json" or path.stat().st_mtime_ns == written[path], path


def at_work(folder):
    """Workers of the cluster that carry out a run just now."""
    found = []
    for pid in ours(folder):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::adax run"):
                found.append(pid)
    return found


LONGER = ("--epochs", "40", "--tune", "0", "--checkpoint-seconds", "0.2")


@pytest.fixture(scope="module")
def calm(nodes, tmp_path_factory):
    """What one machine finds undisturbed, in runs long enough to be killed in the middle."""
    out = tmp_path_factory.mktemp("calm")
    finish(adax(nodes, out, *LONGER, drop=("--on", "ray,")))
    return out


@feature("Ray", "a lost worker is replaced")
@pytest.mark.parametrize("shared", [False, True])
def test_a_killed_worker_costs_time_and_nothing_else(nodes, calm, tmp_path, shared):
    on = f"ray,address={nodes.address},retries=3" + (",shared=true" if shared else "")
    process = adax(nodes, tmp_path, *LONGER, "--on", on, drop=("--on", "ray,"))
    seen = []
    while len(seen) < 2 or seen[-1] - seen[0] < 1.0:  # for a second at least, so that steps have been made
        assert process.poll() is None, process.communicate()[1][-3000:]
        seen += [time.monotonic()] if (working := at_work(nodes.folder)) else []
        time.sleep(0.05)
    os.kill(working[0], signal.SIGKILL)
    finish(process)
    assert len(runs(calm)) == 4
    assert runs(tmp_path) == runs(calm)


def test_what_fails_on_a_node_is_named_and_not_called_lost(nodes):
    """Such as adaxopt that is not installed there, which Ray tells as an error of the task."""
    from adaxlab.errors import RunError
    from adaxlab.execute import cluster

    def run():
        raise ModuleNotFoundError("No module named 'adaxopt'")

    with cluster._connected(cluster.Cluster(nodes.address)) as ray, pytest.raises(RunError) as error:
        cluster._result(ray, ray.remote(run).remote(), {"optimizer": "adaxw"}, cluster.Cluster())
    assert str(error.value).endswith(
        "of adaxw failed on a node: ModuleNotFoundError: No module named 'adaxopt'"
    )


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
    process = adax(Cluster(tmp_path, "nowhere"), tmp_path, "--on", on, drop=("--on", "ray,"))
    _, errors = finish(process, code=2)
    assert line in errors
    assert "Traceback" not in errors


@feature("Ray", "one line where Ray is not installed")
def test_without_ray_the_line_says_what_to_install(monkeypatch):
    from adaxlab.errors import LabError
    from adaxlab.execute import cluster

    monkeypatch.setitem(sys.modules, "ray", None)  # as Python has it for a package that cannot be found
    with pytest.raises(LabError) as error, cluster._connected(cluster.Cluster()):
        pass
    assert str(error.value) == (
        '--on ray needs ray>=2.40, which is not installed: pip install "adaxopt[cluster]" '
        '(from a checkout: pip install -e ".[cluster]")'
    )
