"""Execute each run of a study as a task of an existing Ray cluster, and write its record to the local store.

    adax compare digits --on ray,address=10.0.0.1:6379,cpus=2

A run is executed on a node and returns its record. If a node or worker dies, Ray starts its runs again: from the last
checkpoint if the store is on a file system shared by all nodes (`shared=true`), otherwise from the start. In both cases
the record is that of an uninterrupted run.
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
from adaxlab.errors import Interrupted, LabError, RunError, check_known, unknown
from adaxlab.execute import process
from adaxlab.settings import Settings
from adaxlab.signals import Stop
from adaxlab.spec import digest
from adaxlab.store import RunFolder, RunRecord
from adaxopt.extras import need


@dataclass(frozen=True)
class Cluster:
    """The cluster's address and the resources of each run."""

    address: str = "auto"
    """host:port of the head node, ray://host:10001 from outside, or auto: the cluster that this machine belongs to"""
    cpus: float = 1.0
    gpus: float = 0.0
    """of one run; may be a fraction of a GPU"""
    retries: int = 3
    """how often a run is restarted when its worker is lost"""
    shared: bool = False
    """whether the store is on a file system that every node has at the same path"""

    def __post_init__(self) -> None:
        for name, least in {"cpus": 0, "gpus": 0, "retries": 0}.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value < least:
                raise LabError(f"--on ray: {name}={value!r} must be a number >= {least}")
        if not isinstance(self.shared, bool):
            raise LabError(f"--on ray: shared={self.shared!r} must be true or false")


def parse(text: str) -> Cluster:
    """Parse `ray`, or `ray` with settings.

    >>> parse("ray,cpus=2,shared=true")
    Cluster(address='auto', cpus=2, gpus=0.0, retries=3, shared=True)
    """
    name, *rest = text.split(",")
    if name != "ray":
        raise unknown("--on", name, ["ray"])
    given = dict(options.pair(word) for word in rest)
    known = [f.name for f in fields(Cluster)]
    check_known("setting of --on ray", known, *given)
    return Cluster(**given)


def run_on_node(
    spec: dict[str, Any], settings: dict[str, Any], root: str | None, version: str
) -> dict[str, Any]:
    """Execute one run on a node. Errors of the lab are returned as data, so that Ray retries only lost workers."""
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
    """Executes the runs of a study as tasks of the cluster. Running tasks continue between two calls."""

    def __init__(self, ray: Any, cluster: Cluster) -> None:
        self.ray, self.cluster = ray, cluster
        self.remote = ray.remote(run_on_node).options(
            num_cpus=cluster.cpus, num_gpus=cluster.gpus, max_retries=cluster.retries, name="adax run"
        )
        self.flying: dict[Any, dict[str, Any]] = {}

    def __call__(
        self, specs: Sequence[dict[str, Any]], root: Path, settings: Settings, watcher: Any, stop: Stop
    ) -> Iterator[RunRecord]:
        """Submit the runs that are neither in the store nor running, and yield the records as they arrive."""
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
        """Cancel the running tasks."""
        for task in self.flying:
            self.ray.cancel(task, force=True)
        self.flying.clear()


@contextmanager
def executor(cluster: Cluster) -> Iterator[Executor]:
    """Yield an executor on the cluster; tasks that still run at the end of the block are cancelled."""
    with _connected(cluster) as ray:
        made = Executor(ray, cluster)
        try:
            yield made
        finally:
            made.cancel()


def _result(ray: Any, task: Any, spec: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    try:
        result = ray.get(task)
    except ray.exceptions.RayTaskError as error:  # e.g. adaxopt missing on a node; the worker was not lost
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
    """Write the result to the store of this machine, unless a shared store has it, and return the record."""
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

    joined = ray.is_initialized()  # by the caller, who uses it afterwards
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
    """Raise OSError immediately if nothing listens at the address; Ray itself retries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host, int(port)), timeout=10).close()
