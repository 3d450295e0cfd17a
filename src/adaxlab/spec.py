"""What a run is: a specification as plain data, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from adaxlab import optimizers, schedule, task
from adaxlab.errors import LabError

SCHEMA = 1
PURPOSES = ("tune", "final")


def make(
    *,
    study: str,
    task: str,
    optimizer: str,
    options: Mapping[str, Any],
    epochs: int,
    batch_size: int,
    seed: int,
    purpose: str = "final",
    trial: int | None = None,
    task_options: Mapping[str, Any] | None = None,
    schedule: Mapping[str, Any] | str = "constant",
) -> dict[str, Any]:
    """A specification, checked and with every default written out.

    >>> spec = make(study="s", task="digits", optimizer="adaxw", options={}, epochs=1, batch_size=64, seed=0)
    >>> spec["options"]["lr"], spec["schedule"]["name"], len(digest(spec))
    (0.005, 'constant', 16)
    """
    for key, value in {"epochs": epochs, "batch_size": batch_size}.items():
        if not isinstance(value, int) or value < 1:
            raise LabError(f"{key}={value!r}: must be a whole number >= 1")
    if not isinstance(seed, int) or seed < 0:
        raise LabError(f"seed={seed!r}: must be a whole number >= 0")
    if purpose not in PURPOSES:
        raise LabError(f"purpose={purpose!r}: must be one of {', '.join(PURPOSES)}")
    result = {
        "schema": SCHEMA,
        "study": check_study(study),
        "task": task,
        "task_options": dict(task_options or {}),
        "optimizer": optimizer,
        "options": optimizers.options(optimizer, options),
        "schedule": _complete(schedule),
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "purpose": purpose,
        "trial": trial,
    }
    for key, source in (
        ("task_source", _source(task)),
        ("optimizer_source", optimizers.source_digest(optimizer)),
    ):
        if source is not None:
            result[key] = source
    return json.loads(canonical(result))


def _complete(given: Mapping[str, Any] | str) -> dict[str, Any]:
    return schedule.complete(given)


def _source(name: str) -> str | None:
    return task.source_digest(name)


def check_study(name: str) -> str:
    """A study's name is a folder's name: letters, digits, and - _ . within."""
    if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
        raise LabError(f"study={name!r}: must be letters, digits, - _ . (it names a folder)")
    return name


def canonical(value: Any) -> str:
    """One text for equal data: keys sorted, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(spec: Mapping[str, Any]) -> str:
    """The name of the run: 16 hexadecimal digits of the specification's SHA-256."""
    return hashlib.sha256(canonical(spec).encode()).hexdigest()[:16]
