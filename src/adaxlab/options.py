"""Parse settings on the command line: `name=value`, `adaxw.lr=1e-3`, `cosine,warmup=0.05`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from adaxlab.errors import LabError

REPEATED = ("--set", "--task-option", "--optimizers", "--tune-over")
"""Flags that take several values and may be repeated; `_` in a flag is equivalent to `-`."""
OPTIMIZER_OPTIONS = {
    "lr": "lr=1e-3",
    "learning_rate": "lr=1e-3",
    "weight_decay": "weight_decay=0.1",
    "wd": "weight_decay=0.1",
    "betas": "betas=0.9,0.999",
    "beta1": "betas=0.9,0.999",
    "beta2": "betas=0.9,0.999",
    "b1": "betas=0.9,0.999",
    "b2": "betas=0.9,0.999",
    "eps": "eps=1e-8",
    "momentum": "momentum=0.9",
}
"""Optimizer options that users may expect as flags, in the form that --set takes."""
_WORDS = {"true": True, "false": False, "none": None}


def value(text: str) -> Any:
    """Parse a number, a list of numbers, true, false or none; return other text unchanged.

    >>> value("1e-3"), value("0.9,0.95"), value("true"), value("l2")
    (0.001, (0.9, 0.95), True, 'l2')
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def pair(word: str) -> tuple[str, Any]:
    """Parse `name=value`."""
    name, sign, text = word.partition("=")
    if not sign or not name:
        raise LabError(f"{word!r}: must be name=value")
    return name, value(text)


def pairs(words: Iterable[str]) -> dict[str, Any]:
    """Parse several `name=value` words; each name may be given once."""
    given: dict[str, Any] = {}
    for word in words:
        _put(given, word, *pair(word))
    return given


def _put(given: dict[str, Any], word: str, name: str, number: Any) -> None:
    if name in given:
        raise LabError(f"{word}: {name} was given before, as {given[name]!r}; give it once")
    given[name] = number


def check_flags(words: Sequence[str]) -> None:
    """Raise LabError if an optimizer option is given as a flag of `adax compare`, such as --lr."""
    for word in words if words[:1] == ["compare"] else ():
        if word == "--":
            return
        flag = word.partition("=")[0]
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in OPTIMIZER_OPTIONS:
            example = OPTIMIZER_OPTIONS[name]
            raise LabError(
                f"{flag}: is set per optimizer; use --set OPTIMIZER.{example.partition('=')[0]}=VALUE, such as "
                f"--set adamw.{example}"
            )


def gathered(words: Sequence[str]) -> list[str]:
    """The words of a command line with the values of repeated flags merged, so that none is lost.

    >>> gathered(["reproduce", "gpt", "--set", "a=1", "--out", "runs", "--set", "b=2", "c=3"])
    ['reproduce', 'gpt', '--set', 'a=1', 'b=2', 'c=3', '--out', 'runs']
    """
    out: list[str] = []
    after: dict[str, int] = {}  # where the next word of a flag goes
    flag = ""
    for at, word in enumerate(words):
        if word == "--":  # no flags from here on
            return [*out, *words[at:]]
        if word.startswith("--"):
            name, sign, rest = word.partition("=")
            flag = name.replace("_", "-")
            if flag not in REPEATED:
                flag = ""
                out.append(word)
                continue
            if flag not in after:
                out.append(name)
                after[flag] = len(out)
            if not sign:
                continue
            word = rest
        if flag:
            out.insert(after[flag], word)
            after = {f: place + (place > after[flag] or f == flag) for f, place in after.items()}
        else:
            out.append(word)
    return out


def per_optimizer(words: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Parse `optimizer.option=value` and group by optimizer; the name of the optimizer may contain dots.

    >>> per_optimizer(["adaxw.lr=1e-3", "torch:AdamW.betas=0.9,0.95"])
    {'adaxw': {'lr': 0.001}, 'torch:AdamW': {'betas': (0.9, 0.95)}}
    """
    result: dict[str, dict[str, Any]] = {}
    for word in words:
        name, given = pair(word)
        optimizer, dot, option = name.rpartition(".")
        if optimizer.endswith(
            (".first", ".second")
        ):  # an option of one part of a split: muon+adamw.second.lr=1e-3
            optimizer, _, side = optimizer.rpartition(".")
            option = f"{side}.{option}"
        if not dot or not optimizer:
            raise LabError(f"--set {word}: must be optimizer.option=value, such as adaxw.weight_decay=0.1")
        _put(result.setdefault(optimizer, {}), f"--set {word}", option, given)
    return result


def positive(name: str, given: int | None) -> int:
    """Return `given`, or 0 if it is None; raise LabError if it is less than 1."""
    if given is not None and given < 1:
        raise LabError(f"{name}={given}: must be >= 1")
    return given or 0
