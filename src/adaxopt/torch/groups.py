"""Validation of parameter groups and constructor arguments, with suggestions for unknown names."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from adaxopt import checks
from adaxopt.suggestions import refuse_unknown, suggestion
from adaxopt.torch import hyper, options
from adaxopt.zoo import Method

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

ADVICE = {
    "amsgrad": 'for a running maximum of v use adaxopt.create("amsgrad", ...) or adaxopt.create("amsgradw", ...)',
    "momentum": "momentum is the first of the betas, where a method has one: write betas=(momentum, b2)",
    "p": "use adaxopt.Padax, whose denominator is v^p; here p is 1/2",
    "nesterov": "there is no Nesterov form; leave it out",
    "dampening": "the first moment is an average, m <- b1*m + (1-b1)*g; leave it out and set betas",
    **dict.fromkeys(
        ("biascorrection", "correctbias"), "the method determines the bias correction; leave it out"
    ),
    "totalsteps": "it sets b2 = 3/T and is an option of AdaX, AdaXW and Padax; leave it out",
    "decoupledweightdecay": 'write decay="decoupled" or decay="l2"',
    "weightdecouple": 'write decay="decoupled" or decay="l2"',
    "fixeddecay": 'write decay="fully_decoupled"',
    **dict.fromkeys(("learningrate", "rate", "stepsize"), "did you mean 'lr'?"),
    **dict.fromkeys(("beta", "beta1", "beta2", "b1", "b2"), "write both as betas=(b1, b2)"),
    **dict.fromkeys(("wd", "l2", "weightdecayrate", "regularization"), "did you mean 'weight_decay'?"),
    **dict.fromkeys(("epsilon",), "did you mean 'eps'?"),
}
"""Advice for options that an optimizer does not have. Keys are in lower case, without underscores."""

ANNOTATIONS = re.compile(
    r"_.*|(is|has|use|no)_.*|name|names|param_names|id|tag|label|description|comment|kind|type|layer|layers|depth"
    r"|moe|rho|adaptive"  # DeepSpeed's groups hold the first, those of sharpness-aware minimisation the others
    r"|(max|min|base|initial|final)_(momentum|weight_decay|wd)"
    r"|.*_(lr|lrs|scale|mult|multiplier|factor|ratio|name|names|id|ids|idx|index|tag|label|group|type|layer|config)"
)
"""Keys that schedulers, trainers and users store in a group: initial_lr, swa_lr, lr_scale, lr_mult."""


def construct(optimizer: Engine, params: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of an optimizer with these arguments. Raises for the first invalid argument."""
    name, known = type(optimizer).__name__, {**options.ENGINE_DEFAULTS, **optimizer.method.defaults}
    refuse_unknown(name, given, known, (*optimizer.method.names, "project"), advice=ADVICE)
    given = options.plain(given)
    if isinstance(params, nn.Module):
        raise TypeError(
            f"params is a {type(params).__name__}: must be its parameters, {name}(model.parameters(), ...)"
        )
    defaults = options.plain(
        {**known, **given, **settled(optimizer.method, given, {"betas": (known["betas"][0], None)})}
    )
    options.check(defaults, optimizer.method.rule, outside())
    return {**defaults, "format": options.FORMAT, "method": optimizer.method.name}


def settled(method: Method, given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """`betas`, `memory` and `total_steps` as stored in a group.

    If a group gives b2, a memory or a run length, none of the three defaults is used.
    """
    betas = given.get("betas", (defaults["betas"][0], None))
    memory, total = given.get("memory"), given.get("total_steps")
    opened = isinstance(betas, (tuple, list)) and len(betas) == 2 and betas[1] is None
    if opened and memory is None and total is None:
        betas = (betas[0], defaults["betas"][1])
        memory, total = defaults.get("memory"), defaults.get("total_steps")
    return checks.settle(method, betas, memory, total)


def copied(group: dict[str, Any]) -> dict[str, Any]:
    """A copy of the dict that a caller gave as a group.

    An iterator of parameters, which can be read only once, becomes a list in both: the caller may use the dict again.
    """
    if isinstance(group.get("params"), Iterator):
        group["params"] = list(group["params"])
    return group.copy()


def prepare(optimizer: Engine, group: dict[str, Any]) -> None:
    """Validate a new group and its parameters, and convert it in place to the form that all groups have."""
    defaults, method = optimizer.defaults, optimizer.method
    if "project" in group:
        do = f"give it to the constructor, {type(optimizer).__name__}(params, project=...)"
        if group["project"] is not None and group["project"] is optimizer._project:
            do = "ZeroRedundancyOptimizer, which copies its arguments into the groups, does not support it"
        raise ValueError(
            f"project={group['project']!r} in a parameter group: a projection applies to all groups and is not saved "
            f"in checkpoints; {do}"
        )
    group.update(options.plain(options.renamed(group, method, defaults["betas"])))
    for word in method.names:
        group.pop(word, None)
    group.update(settled(method, group, defaults))
    group.update({key: defaults[key] for key in ("format", "method")})
    merged = {**defaults, **group}
    if any(key not in defaults or group[key] is not defaults[key] for key in group):
        with warnings.catch_warnings():
            if _same(merged["betas"], defaults["betas"]):
                warnings.simplefilter("ignore")  # the constructor has already warned
            options.check(merged, method.rule, outside())
    refuse_fixed(optimizer, merged)
    first = fixed(merged["lr"])
    measured = merged["decay"] == "fully_decoupled" and merged["weight_decay"]
    if measured and not isinstance(first, Tensor) and not first > 0:
        raise ValueError(
            f"lr={merged['lr']!r}: fully decoupled decay is measured against the first lr, which must be > 0"
        )
    given = group.get("params")
    if isinstance(given, Iterable) and not isinstance(given, (Tensor, set)):
        group["params"] = given = list(given)
    for entry in given if isinstance(given, list) else [given]:
        tensor = entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry
        if isinstance(tensor, Tensor):
            options.check_parameter(tensor, merged["state_dtype"], merged["rounding"])
    _warn_of_unknown(optimizer, group)


def refuse_fixed(optimizer: Engine, group: Mapping[str, Any]) -> None:
    """Raise ValueError if p differs from the default of a class whose constructor has no argument p."""
    if group["p"] != optimizer.defaults["p"] and "p" in _without_argument(optimizer):
        raise ValueError(
            f"p={group['p']!r} in a parameter group of {type(optimizer).__name__}: {ADVICE['p']}"
        )


def _same(pair: Any, other: tuple[Any, ...]) -> bool:
    """Whether two pairs are equal. Tensors are compared by identity, without reading them."""
    if not isinstance(pair, tuple) or len(pair) != len(other):
        return False
    return all(
        a is b or not (isinstance(a, Tensor) or isinstance(b, Tensor) or a != b)
        for a, b in zip(pair, other, strict=True)
    )


def _warn_of_unknown(optimizer: Engine, group: Mapping[str, Any]) -> None:
    hidden = {*options.INTERNAL, *_without_argument(optimizer)}
    known = [key for key in optimizer.defaults if key not in hidden] + list(optimizer.method.names)
    for key, value in group.items():
        expected = key in optimizer.defaults or key in ("params", *options.INTERNAL)
        unasked = key in ("amsgrad", "nesterov") and not value  # in groups of torch's AdamW and SGD
        if expected or unasked or ANNOTATIONS.fullmatch(str(key)):
            continue
        name = type(optimizer).__name__
        optimizer._warn_once(
            f"parameter group with {key!r}: not an option of {name}, so it is ignored"
            f"{suggestion(str(key), known, ADVICE) or ': options are ' + ', '.join(sorted(known))}"
        )


def watch_betas(optimizer: Engine, group: dict[str, Any]) -> None:
    """Warn if a b2 that looks like Adam's was written into an existing group.

    The warning is not repeated until the group has had a b2 of AdaX's kind.
    """
    now: Any = group["betas"][1]
    before: Any = optimizer._growth.get(id(group))
    if now is before:
        return
    optimizer._growth[id(group)] = now
    # values on a device are not read, to avoid a synchronisation
    b2, last = (b if isinstance(b, Tensor) and not b.is_cpu else hyper.read(b) for b in (now, before))  # type: Any, Any
    new, old = (checks.suspicious({**group, "betas": (0.0, b)}, optimizer.method.rule) for b in (b2, last))
    if new and not old:
        warnings.warn(checks.looks_like_adams("betas[1]", b2), stacklevel=outside())


def described(optimizer: Engine) -> str:
    """The repr in the form of torch's optimizers: the user options of every group."""
    hidden = {"params", *options.INTERNAL, *_without_argument(optimizer)}
    lines = [f"{type(optimizer).__name__} ("]
    for i, group in enumerate(optimizer.param_groups):
        lines.append(f"Parameter Group {i}")
        lines += [f"    {key}: {group[key]}" for key in sorted(group) if key not in hidden]
        lines.append("")
    return "\n".join(lines[:-1] if len(lines) > 1 else lines) + "\n)"


def arguments(kind: type[Engine]) -> list[str]:
    """The argument names of a constructor; empty if it accepts arbitrary keyword arguments."""
    given = inspect.signature(kind.__init__).parameters
    return [] if any(one.kind is one.VAR_KEYWORD for one in given.values()) else list(given)[1:]


def _without_argument(optimizer: Engine) -> set[str]:
    """Options that the class fixes: p and eps_placement, if its constructor has no such argument."""
    taken = arguments(type(optimizer))
    return {"p", "eps_placement"} - set(taken) if taken else set()


def fixed(lr: Any) -> Any:
    """The current lr as a plain number, if it can be read, so that no step has to read it from a device."""
    number = hyper.read(lr)
    return number.detach().clone() if isinstance(number, Tensor) else number


def outside() -> int:
    """The `stacklevel` with which a warning issued by the calling function shows the user's line."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    return level


OURS = ("adaxopt", "torch")
