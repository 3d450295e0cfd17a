"""Optimizers by name.

    adaxw, adamw, sgdm, ...     a method of the zoo
    torch:NAdam, module:Class   a class that takes parameters; file.py:Class is one of the user's own
    file.py:function            a factory that takes the model and the options, and returns an optimizer
    muon+adamw                  a split: hidden matrices to the first, everything else to the second (adaxlab.joint)

`muon` and `torch:Muon` take matrices only and stand for a split with adamw. An option of a split goes to both parts
where both have it; `first.` and `second.` before its name give it to one of them.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from adaxlab import joint, memory_text, task
from adaxlab.errors import LabError, unknown
from adaxlab.failures import first_line, guarded
from adaxopt import memories
from adaxopt.torch.optimizers import CLASSES
from adaxopt.torch.options import ENGINE_DEFAULTS
from adaxopt.zoo import METHODS

RECORDED = ("lr", "betas", "eps", "weight_decay")  # written into every specification, with what the user sets
MUON = ("muon", "torch:Muon", "torch.optim:Muon")
"""Muon accepts only matrices, so `muon` alone means a split with adamw. Its update is scaled to the size of AdamW's, so
that both can use one lr (Liu et al. 2025)."""
SIDES = ("first", "second")


def names() -> tuple[str, ...]:
    """The names of the zoo."""
    return tuple(METHODS)


def base(name: str) -> str:
    """The optimizer of a name: `adaxw@slow` is adaxw under a second name, with other options.

    A folder may have an @ in its name; the second name has neither `:` nor `/`.

    >>> base("adaxw@slow"), base("me@corp/mine.py:Opt"), base("me@corp/mine.py:Opt@slow")
    ('adaxw', 'me@corp/mine.py:Opt', 'me@corp/mine.py:Opt')
    """
    first, _, second = name.partition("@")
    if first in METHODS:
        return first
    first, sign, second = name.rpartition("@")
    return first if sign and not set(second) & set(":/") else name


def grows(name: str, given: Mapping[str, Any] | None = None) -> bool:
    """Whether b2 is a growth rate, as in AdaX, so that b2*T matters. For a split, that of the last part.

    >>> grows("adaxw@slow"), grows("muon+adaxw"), grows("adamw"), grows("adaxw", {"memory": "LogTime(8)"})
    (True, True, False, False)
    """
    return _memory_kind(name, given) == "growing"


def _memory_kind(name: str, given: Mapping[str, Any] | None) -> str | None:
    """The kind of the memory under these options; of a split, the last part's. None where it is not known."""
    known = METHODS.get(parts(name)[-1])
    if known is None or known.rule.memory is None:
        return None
    chosen = settled(name, given or {})
    text = chosen.get("second.memory", chosen.get("memory")) if "memory" in known.defaults else None
    return known.rule.memory.kind if text is None else memories.read(text)[0].kind


def betas_of(name: str) -> str:
    """The option that holds the betas of an optimizer; for a split, those of its second part.

    >>> betas_of("adaxw"), betas_of("muon+adaxw"), betas_of("adamw+adaxw")
    ('betas', 'betas', 'second.betas')
    """
    found = parts(name)
    return "second.betas" if len(found) == 2 and _accepts(found[0], "betas") else "betas"


def in_graph(name: str) -> dict[str, Any]:
    """The options that an optimizer needs in a CUDA graph.

    >>> in_graph("adaxw@slow"), in_graph("torch:SGD")
    ({'capturable': True}, {'fused': True})
    """
    own = {"torch:SGD": {"fused": True}, "torch:AdamW": {"fused": True, "capturable": True}}
    return own.get(base(name), {"capturable": True})


def remembers(name: str, given: Mapping[str, Any] | None = None) -> bool:
    """Whether the optimizer uses b2: SGDM and AdaGrad have `betas` only for b1, and the number of LogTime(8) is not a
    b2."""
    return parts(name)[-1] not in METHODS or _memory_kind(name, given) in ("growing", "fading")


def parts(name: str) -> tuple[str, ...]:
    """The optimizers that share the model's parameters.

    >>> parts("adamw"), parts("muon+adaxw@slow"), parts("torch:Muon")
    (('adamw',), ('muon', 'adaxw'), ('torch:Muon', 'adamw'))
    """
    found = _divided(base(name))
    return (*found, "adamw") if len(found) == 1 and found[0] in MUON else found


def _divided(kind: str) -> tuple[str, ...]:
    """The names between plus signs; a folder may have such a sign in its name."""
    for i, letter in enumerate(kind):
        if letter == "+" and _named(kind[:i]):
            rest = _divided(kind[i + 1 :])
            if all(map(_named, rest)):
                return kind[:i], *rest
    return (kind,)


def _named(kind: str) -> bool:
    return kind in METHODS or kind in MUON or ":" in kind


def check_name(name: str) -> str:
    """Return the name, or raise an error that lists the known ones."""
    if name.endswith("@"):
        raise LabError(f"optimizer {name!r}: a second name follows the @, such as adaxw@slow")
    kind = base(name)
    listed = [part.strip() for part in kind.split(",") if part.strip()]
    if len(listed) > 1 and not Path(kind.rpartition(":")[0]).is_file():
        raise LabError(f"optimizer {name!r}: names are separated by spaces: --optimizers {' '.join(listed)}")
    found = parts(name)
    if len(found) == 1 and "+" in kind and ":" not in kind:
        found = tuple(kind.split("+"))
    for part in found:
        if not _named(part):
            if part.endswith(".py") or Path(f"{part}.py").is_file():
                task.offer(part, "optimizer", _is_optimizer)
            more = ", muon, or torch:AdamW, module:Class, file.py:Class, file.py:function, or a split: muon+adamw"
            raise unknown("optimizer", part, METHODS, more)
        if len(found) > 2 or (len(found) > 1 and is_factory(part)):
            what = (
                "has more than two parts"
                if len(found) > 2
                else f"{part} is a factory and takes the whole model"
            )
            raise LabError(f"optimizer {name}: {what}; a split has two classes, such as muon+adamw")
        _maker(part)
    return kind


def _maker(kind: str) -> Any:
    """The class, or the factory, of one optimizer."""
    if kind in METHODS:
        return CLASSES[kind]
    if kind in MUON:
        return joint.muon()
    place, _, attribute = kind.rpartition(":")
    if not attribute:
        task.offer(place, "optimizer", lambda value: _is_optimizer(value) or _is_maker(value))
    module = torch.optim if place == "torch" else task.module(place, "optimizer")
    if not hasattr(module, attribute):
        known = [key for key, value in vars(module).items() if _is_optimizer(value) or _is_maker(value)]
        raise unknown(f"optimizer in {place}", attribute, known or ["(none)"])
    made = getattr(module, attribute)
    if not _is_optimizer(made) and (inspect.isclass(made) or not callable(made)):
        raise LabError(
            f"optimizer {kind}: must be a subclass of torch.optim.Optimizer, or a function that takes the model and "
            "returns an optimizer"
        )
    return made


def _is_optimizer(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, torch.optim.Optimizer)


def _is_maker(value: Any) -> bool:
    """A function with an argument lr, as a factory has."""
    return inspect.isfunction(value) and "lr" in inspect.signature(value).parameters


def is_factory(kind: str) -> bool:
    """Whether the name refers to a function that creates an optimizer for a model, not to a class."""
    return ":" in kind and not inspect.isclass(_maker(kind))


def _parameters(kind: str) -> dict[str, inspect.Parameter]:
    """The options of a class or factory: its arguments after the parameters or the model."""
    return dict(list(inspect.signature(_maker(kind)).parameters.items())[1:])


def _takes_any(kind: str) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in _parameters(kind).values())


def _options_of(kind: str) -> list[str]:
    """The options of one optimizer that are known by name."""
    if kind in METHODS and _takes_any(kind):
        return list({**METHODS[kind].defaults, **ENGINE_DEFAULTS})
    named = [key for key, p in _parameters(kind).items() if p.kind is not p.VAR_KEYWORD]
    hidden = ("project", "total_steps") if kind in METHODS else ()  # no word, and set by the lab
    return [key for key in named if key not in hidden]


def _accepts(kind: str, option: str) -> bool:
    return option in _options_of(kind) or (kind not in METHODS and _takes_any(kind))


def accepts(name: str, option: str) -> bool:
    """Whether the optimizer has such an option; for a split, whether one of its parts has it.

    >>> accepts("torch:SGD", "momentum"), accepts("muon+adamw", "second.eps"), accepts("adamw", "momentum")
    (True, True, False)
    """
    found = parts(name)
    side, dot, key = option.partition(".")
    if dot:
        return side in SIDES and len(found) == 2 and _accepts(found[SIDES.index(side)], key)
    return any(_accepts(part, option) for part in found)


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
        if kind not in METHODS and key in (taken := _parameters(kind)):
            return None if taken[key].default is inspect.Parameter.empty else taken[key].default
    return None


def _defaults(kind: str) -> dict[str, Any]:
    """The documented defaults that a specification includes."""
    if kind in METHODS:
        return {key: METHODS[kind].defaults[key] for key in RECORDED}
    found = {key: p.default for key, p in _parameters(kind).items() if key in RECORDED}
    found = {key: value for key, value in found.items() if value is not inspect.Parameter.empty}
    return {**found, "adjust_lr_fn": "match_rms_adamw"} if kind in MUON else found


def options(name: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options in the specification of a run of `name`: its documented defaults, overridden by the user's options.

    >>> options("adaxw", {"weight_decay": 0.1})
    {'lr': 0.005, 'betas': [0.9, 0.0001], 'eps': 1e-12, 'weight_decay': 0.1}
    >>> options("muon+adamw", {"second.lr": 1e-4})["second.weight_decay"]
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
        if not accepts(name, key) and not _knows_better(base(name)):
            raise unknown(f"option of {name}", key, _known(name))
        if value == "":
            raise LabError(f"optimizer {name}: {key}= has no value; give one, such as {name}.{key}=0.1")
    given = settled(name, given)
    result = {**_all_defaults(name, given), **given}
    betas = betas_of(name)
    if grows(name, given) and not grows(name) and betas in result and betas not in given:
        result[betas] = [result[betas][0], METHODS["adaxw"].defaults["betas"][1]]
    if "lr" not in result:
        if not any(_accepts(part, "lr") for part in parts(name)):
            raise LabError(f"optimizer {name}: has no argument lr, which tuning and schedules use; add one")
        raise LabError(f"optimizer {name}: has no default lr; give one with --set {name}.lr=0.001")
    lr = result["lr"]
    if isinstance(lr, bool) or not isinstance(lr, int | float):
        raise LabError(f"optimizer {name}: lr={lr!r}: is not a number; give one, such as {name}.lr=0.001")
    if not 0 < lr < math.inf:
        raise LabError(f"optimizer {name}: lr={lr!r}: must be > 0 and finite")
    result["lr"] = float(lr)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in result.items()}


def _knows_better(kind: str) -> bool:
    """Whether the optimizer accepts any keyword and validates it itself, like the methods without a public class."""
    return kind in METHODS and _takes_any(kind)


def _known(name: str) -> list[str]:
    """The options of an optimizer, for messages."""
    known = dict.fromkeys(key for part in parts(name) for key in _options_of(part))
    return [*(key for key in RECORDED if key in known), *(key for key in known if key not in RECORDED)]


def _of_zoo(name: str, option: str) -> list[str]:
    """The methods of the zoo that have an option, or such a name for one of their betas."""
    side, dot, key = option.rpartition(".")
    found = parts(name)
    if dot:
        found = (found[SIDES.index(side)],) if side in SIDES and len(found) == 2 else ()
    return [k for k in found if k in METHODS and (key in METHODS[k].defaults or key in METHODS[k].names)]


def settled(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options with what sets one of the betas written as a specification has it: `memory` as its text and its
    number in the betas, a method's own name for a beta (`momentum`) there too.

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


def from_data(key: str, value: Any) -> Any:
    """An option in the form that the optimizer expects: a JSON list becomes a tuple, the name of a dtype the dtype.

    >>> from_data("betas", [0.9, 0.95]), from_data("state_dtype", "bfloat16")
    ((0.9, 0.95), torch.bfloat16)
    """
    if isinstance(value, list):
        return tuple(value)
    found = getattr(torch, value, None) if key.endswith("dtype") and isinstance(value, str) else None
    return found if isinstance(found, torch.dtype) else value


def build(
    name: str, params: Iterable[Any], given: Mapping[str, Any], model: torch.nn.Module | None = None
) -> torch.optim.Optimizer:
    """Build the optimizer for `params`, the parameters or groups of `model`; a factory receives the model itself.

    An unknown or invalid option raises a one-line error.
    """
    check_name(name)
    found = parts(name)
    chosen = {key: from_data(key, value) for key, value in given.items()}
    with guarded(f"optimizer {name}"):
        try:
            if len(found) == 2:
                made = _split(name, params, chosen, model)
            elif is_factory(found[0]):
                made = _from_factory(name, chosen, model)
            else:
                made = _maker(found[0])(params, **chosen)
        except (TypeError, ValueError) as error:
            raise LabError(f"optimizer {name}: {first_line(error)}") from error
    if inspect.signature(made.step).parameters.get("closure", _OPTIONAL).default is inspect.Parameter.empty:
        raise LabError(
            f"optimizer {name}: its step() needs a closure, which would evaluate the model several times a step; "
            "choose one that steps without"
        )
    return made


_OPTIONAL = inspect.Parameter("closure", inspect.Parameter.KEYWORD_ONLY, default=None)


def _split(
    name: str, params: Iterable[Any], chosen: Mapping[str, Any], model: torch.nn.Module | None
) -> torch.optim.Optimizer:
    found = parts(name)
    if model is None:
        raise LabError(f"optimizer {name}: a split needs the model, to know its hidden matrices")
    divided = joint.divide(params, joint.hidden_matrices(model).values())
    if not divided[0]:
        raise LabError(
            f"optimizer {name}: the model has no hidden matrix for {found[0]} (two dimensions, neither an embedding "
            f"nor the output layer); use {found[1]} alone"
        )
    made = []
    for side, kind, groups in zip(SIDES, found, divided, strict=True):
        if groups:
            shared = {key: value for key, value in chosen.items() if "." not in key and _accepts(kind, key)}
            own = {key.partition(".")[2]: v for key, v in chosen.items() if key.startswith(f"{side}.")}
            made.append(_maker(kind)(groups, **{**shared, **own}))
    return joint.Joint(made)


def _from_factory(name: str, chosen: Mapping[str, Any], model: torch.nn.Module | None) -> Any:
    if model is None:
        raise LabError(f"optimizer {name}: a factory needs the model")
    made = _maker(base(name))(model, **chosen)
    needed = ("step", "zero_grad", "param_groups", "state_dict", "load_state_dict")
    missing = [key for key in needed if not hasattr(made, key)]
    if missing:
        raise LabError(
            f"optimizer {name}: gave a {type(made).__name__} without {', '.join(missing)}; it must return an optimizer"
        )
    inside = {id(p) for group in made.param_groups for p in group["params"]}
    left = [key for key, p in model.named_parameters() if p.requires_grad and id(p) not in inside]
    if left:
        raise LabError(
            f"optimizer {name}: leaves out {len(left)} parameters ({left[0]}, ...); put all of them into groups, or "
            "set requires_grad = False in the task's model()"
        )
    return made


def source_digest(name: str) -> str | None:
    """A digest of the files of a user's optimizer, so that an edited one gives new runs; None for optimizers of torch
    and of this package."""
    found = [task.file_digest(_maker(part)) for part in parts(name) if ":" in part]
    return "+".join(digest for digest in found if digest) or None


@functools.cache
def warm_up() -> None:
    """Make one step of a single number, so that torch's imports at the first step are not timed with the first run."""
    p = torch.nn.Parameter(torch.zeros(1))
    p.grad = torch.zeros(1)
    for name in ("torch:SGD", "adaxw"):
        build(name, [p], {"lr": 0.1}).step()


def check_options(name: str, given: Mapping[str, Any]) -> None:
    """Build an optimizer of this package or of torch once for a single number, so that an invalid option is found
    before any run starts. Other optimizers may need certain shapes or groups; they are built for the task's model
    (adaxlab.compare.check)."""
    given = options(name, given)
    kinds = parts(name)
    if len(kinds) == 1 and (kinds[0] in METHODS or kinds[0].startswith("torch:")):
        build(name, [torch.nn.Parameter(torch.zeros(1))], given)
