"""`adax reproduce NAME`: the paper's own experiments by name. Each is loaded only when it is asked for."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adaxlab import kinds
from adaxlab.errors import LabError, unknown
from adaxopt.extras import LAB

THEORY = ("synthetic", "reddi", "theory")
TEXT = {
    "adaxlab.language.studies": ("language", "language/ptb", "language/enwik8"),
    "adaxlab.language.wakers": ("language/late-wakers",),
    "adaxlab.language.beginnings": ("language/zero-state",),
    "adaxlab.gpt.studies": ("gpt",),
    "adaxlab.voc.studies": ("voc/camvid", "voc/tuning"),
    "adaxlab.imagenet.studies": tuple(
        f"imagenet/{name}" for name in ("tiny", "tuning", "tuned", "tiny-resnet50", "resnet18", "resnet50")
    ),
}


def _lazy(module: str, name: str) -> Callable[..., Any]:
    """The study's own `run`, imported when it is called."""

    def call(out: Path, **options: Any) -> Any:
        function = importlib.import_module(module).run
        _check(name, function, options)
        return function(name, out, **options)

    return call


def _check(name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """An override that the study does not know, or of another kind than its own, is an error of one line."""
    parameters = inspect.signature(function).parameters
    known = [key for key in parameters if key not in ("name", "out", *INNER)]
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for key in options:
            if key not in known:
                raise unknown(f"override of study {name}", key, known or ["(none)"])
    kinds.check(function, {key: given for key, given in options.items() if key in known}, "--set")


INNER = ("tell", "watcher")
"""What a study takes from Python alone."""


def _studies() -> dict[str, Callable[..., Any]]:
    studies = {name: _lazy("adaxlab.theory.cli", name) for name in THEORY}
    studies["first-lr"] = _lazy("adaxlab.first_lr", "first-lr")
    if importlib.util.find_spec("adaxlab.cifar") and importlib.util.find_spec("adaxlab.cifar.studies"):
        names = importlib.import_module("adaxlab.cifar.studies").NAMES
        studies |= {name: _lazy("adaxlab.cifar.studies", name) for name in names}
    studies |= {name: _lazy(module, name) for module, names in TEXT.items() for name in names}
    return studies


STUDIES: dict[str, Callable[..., Any]] = _studies()


def run(name: str, out: Path, options: Mapping[str, Any]) -> Any:
    """Carry out the study called `name`, with overrides of its settings; returns what the study does."""
    if name not in STUDIES:
        raise unknown("study", name, sorted(STUDIES))
    try:
        return STUDIES[name](out, **options)
    except ModuleNotFoundError as error:
        raise LabError(f"study {name}: needs {error.name}; {LAB}") from error
