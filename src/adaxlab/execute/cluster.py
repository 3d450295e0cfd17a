"""Many machines: send each run of a study to an existing Ray cluster, and put its record into the same store.

    adax compare digits --on ray,address=10.0.0.1:6379,cpus=2

A run is carried out on some node and comes back as its record. A node or worker that dies costs its runs their time:
Ray starts them again, from their last checkpoint where the store is on a file system that every node sees
(`shared=true`), else from the beginning. Either way the record is that of an undisturbed run.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import adaxopt
from adaxlab import failures, options
from adaxlab.errors import Interrupted, LabError, RunError, unknown
from adaxlab.execute import process
from adaxlab.settings import Settings
from adaxlab.signals import Stop
from adaxlab.spec import digest
from adaxlab.store import RunFolder, RunRecord
from adaxopt.extras import need


@dataclass(frozen=True)
class Cluster:
    """Where runs go, and what each of them is given there."""

    address: str = "auto"
    """host:port of the head node, ray://host:10001 from outside, or auto: the cluster this machine is part of"""
    cpus: float = 1.0
    gpus: float = 0.0
    """of one run; parts of a GPU are shared"""
    retries: int = 3
    """how often a run is begun again when its worker is lost"""
    shared: bool = False
    """the store is on a file system that every node sees under the same path"""

    def __post_init__(self) -> None:
        for name, least in {"cpus": 0, "gpus": 0, "retries": 0}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
                raise LabError(f"--on ray: {name}={value!r} must be a number >= {least}")
        if not isinstance(self.shared, bool):
            raise LabError(f"--on ray: shared={self.shared!r} must be true or false")


def parse(text: str) -> Cluster:
    """`ray`, or `ray` with settings.

    >>> parse("ray,cpus=2,shared=true")
    Cluster(address='auto', cpus=2, gpus=0.0, retries=3, shared=True)
    """
    name, *rest = text.split(",")
    if name != "ray":
        raise unknown("--on", name, ["ray"])
    given = dict(options.pair(word) for word in rest)
    known = [f.name for f in fields(Cluster)]
    for key in given:
        if key not in known:
            raise unknown("setting of --on ray", key, known)
    return Cluster(**given)


def run_on_node(
    spec: dict[str, Any], settings: dict[str, Any], root: str | None, version: str
) -> dict[str, Any]:
    """One run, on a node. What the lab says went wrong comes back as data; only a lost worker is an error to Ray."""
    import ray

    if adaxopt.__version__ != version:
        return {
            "error": f"a node has adaxopt {adaxopt.__version__}, this machine {version}: install the same"
        }
    try:
        with TemporaryDirectory(prefix="adax-") as own:
            record = process.run(spec, root or own, Settings(**settings))
    except RunError as error:
        return {"failed": str(error), "trace": failures.text(error)}
    except LabError as error:
        return {"error": str(error)}
    node = ray.get_runtime_context().get_node_id()
    return {"env": {**record.env, "node": node}, "metrics": record.metrics, "done": record.done}


class Executor:
    """The runs of a study as tasks of the cluster. What is in flight stays there between two calls."""

    def __init__(self, ray: Any, cluster: Cluster) -> None:
        self.ray, self.cluster = ray, cluster
        self.remote = ray.remote(run_on_node).options(
            num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=cluster.retries, name="adax run"
        )
        self.flying: dict[Any, dict[str, Any]] = {}

    def __call__(
        self, specs: Sequence[dict[str, Any]], root: Path, settings: Settings, watcher: Any, stop: Stop
    ) -> Iterator[RunRecord]:
        """Submit what is not in the store and not in flight, and yield the records as they come back."""
        place = str(root.resolve()) if self.cluster.shared else None
        for spec in specs:
            folder = RunFolder(root, spec)
            if folder.finished() or folder.borrow():
                yield folder.record()
            elif spec not in self.flying.values():
                task = self.remote.remote(spec, asdict(settings), place, adaxopt.__version__)
                self.flying[task] = spec
        while self.flying:
            ready, _ = self.ray.wait(list(self.flying), timeout=0.2)
            if stop.signum:
                raise Interrupted("stopped; finished runs are in the store", stop.signum)
            for task in ready:
                spec = self.flying.pop(task)
                yield _kept(root, spec, _result(self.ray, task, spec, self.cluster))

    def cancel(self) -> None:
        """Stop what is in flight."""
        for task in self.flying:
            self.ray.cancel(task, force=True)
        self.flying.clear()


@contextmanager
def executor(cluster: Cluster) -> Iterator[Executor]:
    """An executor on the cluster; what is in flight when the block ends is cancelled."""
    with _connected(cluster) as ray:
        made = Executor(ray, cluster)
        try:
            yield made
        finally:
            made.cancel()


def _result(ray: Any, task: Any, spec: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    try:
        result = ray.get(task)
    except ray.exceptions.RayTaskError as error:  # adaxopt missing on a node, say: not a worker that was lost
        cause = error.cause
        raise RunError(
            f"run {digest(dict(spec))} of {spec['optimizer']} failed on a node: {type(cause).__name__}: "
            f"{failures.first_line(cause)}"
        ) from error
    except ray.exceptions.RayError as error:
        raise RunError(
            f"run {digest(dict(spec))} of {spec['optimizer']} was lost {cluster.retries + 1} times on the cluster "
            f"({type(error).__name__}); repeat the command to resume"
        ) from error
    if "error" in result:
        raise RunError(result["error"])
    return result


def _kept(root: Path, spec: dict[str, Any], result: Mapping[str, Any]) -> RunRecord:
    """The run in the store of this machine (where a shared store has it already, as it stands)."""
    folder = RunFolder(root, spec)
    if "failed" in result:
        with folder.lock():
            folder.fail(result["failed"], result["trace"])
    elif not folder.finished():
        folder.put(dict(result["env"]), result["metrics"], dict(result["done"]))
    return folder.record()


@contextmanager
def _connected(cluster: Cluster) -> Iterator[Any]:
    try:
        need("--on ray", "adaxopt[cluster]", ray="2.40")
    except ImportError as error:
        raise LabError(str(error)) from error
    import ray

    joined = ray.is_initialized()  # by the caller, who goes on with it afterwards
    try:
        _check_reachable(cluster.address)
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise LabError(
            f"no Ray cluster at {cluster.address!r}; start one with `ray start --head`, or name its head node: "
            "--on ray,address=host:6379"
        ) from error
    try:
        yield ray
    finally:
        if not joined:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise OSError at once where nobody listens: Ray itself asks again for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=10).close()
