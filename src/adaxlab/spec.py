"""Specifications: a run as plain data, and the hash that names it.

The hash omits what does not change the run: the study, the row's label (`adaxw@slow` is adaxw) and, if the data have a
digest, their folders on this machine. A run of one study, or of another machine, is therefore reused by every study
with the same specification.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from adaxlab import optimizer_options, optimizers
from adaxlab import schedule as schedules
from adaxlab import task as tasks
from adaxlab.errors import LabError
from adaxlab.run_faults import PURPOSES

SCHEMA = 2
LABELS = ("study", "row", "trial")
"""The labels that a study gives a run; they are not part of the hash."""
PLACES = ("data", "weights", "cache")
"""Options of a task that are paths on a machine."""


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
    data: str | None = None,
    row: str = "",
) -> dict[str, Any]:
    """A specification, checked and with every default written out; `data` is the digest of the task's data, if known,
    `row` the name of the study's row, the optimizer's unless given.

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
        "row": row or optimizer,
        "task": task,
        "task_options": dict(task_options or {}),
        "optimizer": optimizer,
        "options": optimizer_options.complete(optimizer, options),
        "schedule": schedules.complete(schedule),
        "epochs": epochs,
        "batch_size": batch_size,
        "seed": seed,
        "purpose": purpose,
        "trial": trial,
    }
    for key, source in (
        ("data", data),
        ("task_source", tasks.source_digest(task)),
        ("optimizer_source", optimizers.source_digest(optimizer)),
    ):
        if source is not None:
            result[key] = source
    return json.loads(canonical(result))


def check_study(name: str) -> str:
    """A study's name: letters, digits, - _ . and a / between a family and its study."""
    parts = name.split("/")
    if len(parts) > 2 or not all(
        part and all(c.isalnum() or c in "-_." for c in part) and not part.startswith(".") for part in parts
    ):
        raise LabError(f"study={name!r}: must be letters, digits, - _ . (it names a folder)")
    return name


def folder(study: str) -> str:
    """The folder of a study in a store.

    >>> folder("language/ptb")
    'language-ptb'
    """
    return study.replace("/", "-")


def canonical(value: Any) -> str:
    """A canonical JSON text: sorted keys, no spaces. Values that JSON cannot hold (NaN, infinity, a set) raise."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LabError(
            f"{_strange(value)}: must be a finite number, a text, true, false, none or a list"
        ) from error


def _strange(value: Any, name: str = "setting") -> str:
    """The part of a value that JSON cannot hold, by its name."""
    if isinstance(value, Mapping):
        parts = ((str(key), part) for key, part in value.items())
    elif isinstance(value, list | tuple):
        parts = ((name, part) for part in value)
    else:
        return f"{name}={value!r}"
    for key, part in parts:
        try:
            json.dumps(part, allow_nan=False)
        except (TypeError, ValueError):
            return _strange(part, key)
    return name


def without_places(options: Mapping[str, Any]) -> dict[str, Any]:
    """A task's options without paths on this machine."""
    return {key: value for key, value in options.items() if key not in PLACES}


def identity(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a specification that identifies a run."""
    kept = {key: value for key, value in spec.items() if key not in LABELS}
    kept["optimizer"] = optimizers.base(spec["optimizer"])
    if "data" in spec:
        kept["task_options"] = without_places(spec["task_options"])
    return kept


def digest(spec: Mapping[str, Any]) -> str:
    """The name of the run: 16 hexadecimal digits of the SHA-256 of its identity."""
    return hashlib.sha256(canonical(identity(spec)).encode()).hexdigest()[:16]
