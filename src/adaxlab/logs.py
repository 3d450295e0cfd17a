"""Log the curves of runs to TensorBoard, Weights & Biases or Trackio: `--log tensorboard`.

A log is a watcher (adaxlab.driver.Watcher), the protocol for objects that follow the progress of a study:

    start(study, runs)                  before the first run
    running(spec, step, total, metric)  a few times per second during a run of this process
    finished(record)                    once for each run of the study, including those of other processes or the store

A run is logged as a whole when it has ended. The log therefore has the same curves however often the study was
interrupted, and includes the runs of other processes. A file beside the runs marks each logged run, so that no run is
logged twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from adaxlab.errors import LabError, check_known
from adaxlab.store import RunRecord
from adaxlab.study import Study
from adaxopt.extras import need

FOLDER = "logs"
"""The default folder of TensorBoard's files."""
LEFT_OUT = ("step", "epoch")


def label(record: RunRecord) -> str:
    """The run's name in the log: `adaxw/final-seed0-1a2b3c4d`, `adaxw/tune3-1a2b3c4d`."""
    spec = record.spec
    what = f"tune{spec['trial']}" if spec["purpose"] == "tune" else f"final-seed{spec['seed']}"
    row = "".join(c if c.isalnum() or c in "-_.+@" else "_" for c in record.row)
    return f"{row}/{what}-{record.name[:8]}"


def scalars(record: RunRecord) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield (step, named numbers) for every evaluation, with the judged metric under its own name.

    Other metrics of a task's `evaluate` are included.
    """
    name = record.done["metric_name"] if record.done else "metric"
    for line in record.metrics:
        found = {key: value for key, value in line.items() if key not in (*LEFT_OUT, "metrics", "metric")}
        found |= {name: line["metric"], **line.get("metrics", {})}
        yield line["step"], {key: value for key, value in found.items() if isinstance(value, int | float)}


def settings(record: RunRecord) -> dict[str, Any]:
    """The settings that distinguish runs, as a flat dict."""
    spec = record.spec
    kept = {
        key: spec[key]
        for key in ("study", "task", "optimizer", "row", "seed", "purpose", "epochs", "batch_size")
    }
    return {**kept, **{f"options.{key}": value for key, value in spec["options"].items()}}


def tensorboard(place: str) -> Callable[[RunRecord], None]:
    """Write files for `tensorboard --logdir`, one folder per run."""
    _need("tensorboard", "2.18")
    from torch.utils.tensorboard import SummaryWriter

    def send(record: RunRecord) -> None:
        folder = Path(place or FOLDER) / record.spec["study"] / label(record)
        for old in folder.glob("events.*"):  # left by a process that was killed while writing
            old.unlink()
        with SummaryWriter(folder) as writer:
            writer.add_text("specification", f"```json\n{json.dumps(record.spec, indent=1)}\n```")
            for step, found in scalars(record):
                for key, value in found.items():
                    writer.add_scalar(key, value, step)

    return send


def tracker(name: str) -> Callable[[str], Callable[[RunRecord], None]]:
    """Log to Weights & Biases or to Trackio, which has the same functions; the study is the group of its runs."""

    def made(place: str) -> Callable[[RunRecord], None]:
        _need(name, {"wandb": "0.19", "trackio": "0.2"}[name])
        import importlib

        library = importlib.import_module(name)

        def send(record: RunRecord) -> None:
            study = record.spec["study"]
            library.init(project=place or "adax", name=label(record), group=study, config=settings(record))
            for step, found in scalars(record):
                library.log(found, step=step)
            library.finish()

        return send

    return made


KINDS: Mapping[str, Callable[[str], Callable[[RunRecord], None]]] = {
    "tensorboard": tensorboard,
    "wandb": tracker("wandb"),
    "trackio": tracker("trackio"),
}


def _need(name: str, version: str) -> None:
    try:
        need(f"--log {name}", name, **{name: version})
    except ImportError as error:
        raise LabError(str(error)) from error


class Log:
    """A watcher that logs every ended run once."""

    def __init__(self, kind: str, place: str = "") -> None:
        self.kind = kind
        self.send = KINDS[kind](place)

    def start(self, study: Study, runs: int) -> None: ...

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None: ...

    def finished(self, record: RunRecord) -> None:
        mark = record.path.parent / ".logged" / f"{self.kind}-{record.name}"
        if record.done and not mark.exists():
            with redirect_stdout(sys.stderr):  # only results go to standard output
                self.send(record)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()


class Several:
    """A watcher that forwards every call to several watchers."""

    def __init__(self, *watchers: Any) -> None:
        self.watchers = watchers

    def start(self, study: Study, runs: int) -> None:
        for each in self.watchers:
            each.start(study, runs)

    def running(self, spec: Mapping[str, Any], step: int, total: int, metric: float | None) -> None:
        for each in self.watchers:
            each.running(spec, step, total, metric)

    def finished(self, record: RunRecord) -> None:
        for each in self.watchers:
            each.finished(record)


def beside(words: str) -> list[Log]:
    """The requested log, if any: `tensorboard`, `wandb` or `trackio`, optionally with `=` and a folder or project."""
    kind, _, place = words.partition("=")
    if not words:
        return []
    check_known("--log", KINDS, kind)
    return [Log(kind, place)]
