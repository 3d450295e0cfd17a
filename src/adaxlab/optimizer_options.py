"""The options of an optimizer: which it has, their defaults, and the form in which a specification has them.

An option of a split goes to both parts if both have it; `first.` and `second.` before its name give it to one of them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch

from adaxlab import memory_text
from adaxlab.errors import LabError, unknown
from adaxlab.optimizers import (
    MUON,
    SIDES,
    arguments,
    base,
    build,
    check_name,
    options_of,
    parts,
    takes,
    takes_any,
)
from adaxopt import memories
from adaxopt.zoo import METHODS

RECORDED = ("lr", "betas", "eps", "weight_decay")  # written into every specification, with what the user sets


def complete(name: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options in the specification of a run of `name`: its documented defaults, overridden by the user's options.

    >>> complete("adaxw", {"weight_decay": 0.1})
    {'lr': 0.005, 'betas': [0.9, 0.0001], 'eps': 1e-12, 'weight_decay': 0.1}
    >>> complete("muon+adamw", {"second.lr": 1e-4})["second.weight_decay"]
    0.01
    """
    check_name(name)
    given = dict(given or {})
    for key, value in given.items():
        if key.rpartition(".")[2] == "total_steps" and _of_zoo(name, key):
            raise LabError(
                f"optimizer {name}: {key}={value!r}: b2 is 3/T already, where T is the number of steps of a run; "
                f"leave it out, or set b2 itself, such as {name}.{betas_of(name)}=0.9,0.001"
            )
        if not accepts(name, key) and not _validates_itself(base(name)):
            raise unknown(f"option of {name}", key, _known(name))
        if value == "":
            raise LabError(f"optimizer {name}: {key}= has no value; give one, such as {name}.{key}=0.1")
    given = settled(name, given)
    result = {**_all_defaults(name, given), **given}
    betas = betas_of(name)
    if grows(name, given) and not grows(name) and betas in result and betas not in given:
        result[betas] = [result[betas][0], METHODS["adaxw"].defaults["betas"][1]]
    if "lr" not in result:
        if not any(takes(part, "lr") for part in parts(name)):
            raise LabError(f"optimizer {name}: has no argument lr, which tuning and schedules use; add one")
        raise LabError(f"optimizer {name}: has no default lr; give one with --set {name}.lr=0.001")
    lr = result["lr"]
    if isinstance(lr, bool) or not isinstance(lr, int | float):
        raise LabError(f"optimizer {name}: lr={lr!r}: is not a number; give one, such as {name}.lr=0.001")
    if not 0 < lr < math.inf:
        raise LabError(f"optimizer {name}: lr={lr!r}: must be > 0 and finite")
    result["lr"] = float(lr)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in result.items()}


def check(name: str, given: Mapping[str, Any]) -> None:
    """Build an optimizer of this package or of torch once for a single number, so that an invalid option is found
    before any run starts. Other optimizers may need certain shapes or groups; they are built for the task's model
    (adaxlab.compare.check)."""
    given = complete(name, given)
    kinds = parts(name)
    if len(kinds) == 1 and (kinds[0] in METHODS or kinds[0].startswith("torch:")):
        build(name, [torch.nn.Parameter(torch.zeros(1))], given)


def accepts(name: str, option: str) -> bool:
    """Whether the optimizer has such an option; for a split, whether one of its parts has it.

    >>> accepts("torch:SGD", "momentum"), accepts("muon+adamw", "second.eps"), accepts("adamw", "momentum")
    (True, True, False)
    """
    found = parts(name)
    side, dot, key = option.partition(".")
    if dot:
        return side in SIDES and len(found) == 2 and takes(found[SIDES.index(side)], key)
    return any(takes(part, option) for part in found)


def default(name: str, option: str) -> Any:
    """The documented default of an option (for a split, that of the first part that has one), or None.

    >>> default("torch:SGD", "momentum"), default("muon+adamw", "second.eps"), default("adamw", "clip_update")
    (0, 1e-08, None)
    """
    side, dot, key = option.rpartition(".")
    found = parts(name)
    for kind in (found[SIDES.index(side)],) if dot else found:
        if kind in METHODS and key in METHODS[kind].defaults:
            return METHODS[kind].defaults[key]
        if kind not in METHODS and key in (taken := arguments(kind)):
            return None if taken[key].default is inspect.Parameter.empty else taken[key].default
    return None


def settled(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the form of a specification: a `memory` as its text with its number in the betas, and a method's
    own name for a beta, such as `momentum`, as an element of the betas.

    >>> settled("adaxw", {"memory": "LogTime(8)"}), settled("sgdm", {"momentum": 0.5})
    ({'memory': 'log_time', 'betas': [0.9, 8]}, {'betas': [0.5, 0.0]})
    """
    result = dict(given)
    for key in given:
        side, dot, word = key.rpartition(".")
        kinds = _of_zoo(name, key)
        if not kinds:
            continue
        known, betas = METHODS[kinds[0]], f"{side}{dot}betas"
        if word == "memory" and given[key] is not None:
            result |= memory_text.with_number(name, key, betas, known.defaults["betas"][0], result)
        elif word in known.names and betas not in result and (dot or len(parts(name)) == 1):
            pair = list(known.defaults["betas"])
            pair[known.names[word]] = result.pop(key)
            result[betas] = pair
    return result


def betas_of(name: str) -> str:
    """The option that holds the betas of an optimizer; for a split, those of its second part.

    >>> betas_of("adaxw"), betas_of("muon+adaxw"), betas_of("adamw+adaxw")
    ('betas', 'betas', 'second.betas')
    """
    found = parts(name)
    return "second.betas" if len(found) == 2 and takes(found[0], "betas") else "betas"


def grows(name: str, given: Mapping[str, Any] | None = None) -> bool:
    """Whether b2 is a growth rate, as in AdaX, so that b2*T matters. For a split, that of the last part.

    >>> grows("adaxw@slow"), grows("muon+adaxw"), grows("adamw"), grows("adaxw", {"memory": "LogTime(8)"})
    (True, True, False, False)
    """
    return _memory_kind(name, given) == "growing"


def b2_steps(name: str, options: Mapping[str, Any], steps: int) -> float | None:
    """b2*T of a run with these options, if b2 is a growth rate; None before any step.

    >>> b2_steps("adaxw", {"betas": [0.9, 1e-3]}, 3000), b2_steps("adamw", {"betas": [0.9, 0.999]}, 3000)
    (3.0, None)
    """
    betas = options.get(betas_of(name)) if grows(name, options) else None
    return float(betas[1]) * steps if betas and steps else None


def remembers(name: str, given: Mapping[str, Any] | None = None) -> bool:
    """Whether the optimizer uses b2: SGDM and AdaGrad have `betas` only for b1, and the number of LogTime(8) is not a
    b2."""
    return parts(name)[-1] not in METHODS or _memory_kind(name, given) in ("growing", "fading")


def _memory_kind(name: str, given: Mapping[str, Any] | None) -> str | None:
    """The kind of memory with these options; for a split, that of the last part. None if it is not known."""
    known = METHODS.get(parts(name)[-1])
    if known is None or known.rule.memory is None:
        return None
    chosen = settled(name, given or {})
    text = chosen.get("second.memory", chosen.get("memory")) if "memory" in known.defaults else None
    return known.rule.memory.kind if text is None else memories.read(text)[0].kind


def _validates_itself(kind: str) -> bool:
    """Whether the optimizer accepts any keyword and validates it itself, like the methods without a public class."""
    return kind in METHODS and takes_any(kind)


def _known(name: str) -> list[str]:
    """The options of an optimizer, for messages."""
    known = dict.fromkeys(key for part in parts(name) for key in options_of(part))
    return [*(key for key in RECORDED if key in known), *(key for key in known if key not in RECORDED)]


def _of_zoo(name: str, option: str) -> list[str]:
    """The methods of the zoo that have an option, or such a name for one of their betas."""
    side, dot, key = option.rpartition(".")
    found = parts(name)
    if dot:
        found = (found[SIDES.index(side)],) if side in SIDES and len(found) == 2 else ()
    return [k for k in found if k in METHODS and (key in METHODS[k].defaults or key in METHODS[k].names)]


def _defaults(kind: str) -> dict[str, Any]:
    """The documented defaults that a specification includes."""
    if kind in METHODS:
        return {key: METHODS[kind].defaults[key] for key in RECORDED}
    found = {key: p.default for key, p in arguments(kind).items() if key in RECORDED}
    found = {key: value for key, value in found.items() if value is not inspect.Parameter.empty}
    return {**found, "adjust_lr_fn": "match_rms_adamw"} if kind in MUON else found


def _all_defaults(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of all parts. Both parts of a split share one lr; other defaults that differ are prefixed with the
    part's name."""
    found = parts(name)
    if len(found) == 1:
        return _defaults(found[0])
    each = [_defaults(part) for part in found]
    result: dict[str, Any] = {}
    for key in dict.fromkeys([*each[0], *each[1]]):
        having = [(side, one[key]) for side, one in zip(SIDES, each, strict=True) if key in one]
        if key in given:
            continue
        if key == "lr" or len(having) == 1 or having[0][1] == having[1][1]:
            result[key] = having[0][1]
        else:
            result |= {f"{side}.{key}": value for side, value in having}
    return result
