"""Conversion of checkpoints of torch's Adam and AdamW and of the released AdaX code.

In this package, `exp_avg_sq` is the normalised v. In the released AdaX code it is v * ((1+b2)^t - 1), in torch's AdamW
v * (1 - b2^t).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.memories import Fading
from adaxopt.memory import fading_log_norm, growing_log_norm
from adaxopt.torch import checkpoint, codes, foreign, options, shards, state

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


def load_released_state_dict(optimizer: Engine, state_dict: Mapping[str, Any]) -> None:
    """Load a checkpoint of the released AdaX or AdaXW class into AdaX, AdaXW or Padax.

        v = v_released / ((1+b2)^t - 1)

    lr, betas, eps and weight_decay come from the checkpoint. Options that the released code did not have keep this
    optimizer's values; a memory that was given keeps its number, which is stored as b2. A second moment that has
    overflowed (after about 887,000 steps in float32) cannot be recovered, and raises ValueError.
    """
    _load(optimizer, state_dict, "released", ("lr", "betas", "eps", "weight_decay"), growing_log_norm)


def load_adamw_state_dict(optimizer: Engine, state_dict: Mapping[str, Any]) -> None:
    """Load a checkpoint of Adam or AdamW, torch's or this package's, into AdaX, AdaXW or Padax.

        v = v_adam / (1 - b2^t)      torch's; this package's v is already divided

    Only m, v and t are loaded. Adam's lr and betas have other meanings here, so this optimizer keeps its own
    hyper-parameters. After many steps v hardly changes (see `stats()`); `restart_memory()` resets it. The rounding
    compensation of 16-bit parameters is loaded too, but not from `rounding="kahan"` into "24bit" or the reverse.
    """
    _load(optimizer, state_dict, "adamw", (), fading_log_norm)


TORCHS = {
    "lr",
    "betas",
    "eps",
    "weight_decay",
    "maximize",
    "foreach",
    "capturable",
    "differentiable",
    "fused",
}
"""Options that torch's Adam and AdamW have too, under the same names."""


def from_torch(optimizer: Engine, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a checkpoint of torch's Adam or AdamW to this package's format.

    Its options are kept, and v is divided by 1 - b2^t (not under amsgrad, where both formats store the same v).
    """
    left = ("amsgrad", "decoupled_weight_decay")
    groups = []
    for mine, other in _paired(optimizer, given):
        ours = {*optimizer.defaults, "reference_lr"} - TORCHS
        kept = {k: v for k, v in mine.items() if k in ours}
        theirs = {k: v for k, v in other.items() if k not in left}
        groups.append({**theirs, **kept, **_numbers(mine, other)})
        if "decoupled_weight_decay" in other and other["decoupled_weight_decay"] == (mine["decay"] == "l2"):
            raise ValueError(
                f"checkpoint with decoupled_weight_decay={other['decoupled_weight_decay']}: this optimizer has "
                f"decay={mine['decay']!r}; load it into the class of the same name"
            )
    if optimizer.method.rule.sigma:
        moments = {
            name: {k: _wide(v) if k in state.STATE and isinstance(v, Tensor) else v for k, v in entry.items()}
            if isinstance(entry, Mapping)
            else entry
            for name, entry in given["state"].items()
        }
    else:
        moments = _normalised(given, fading_log_norm)
    return {"state": _as_asked(moments, groups), "param_groups": groups}


def to_torch(optimizer: Engine) -> dict[str, Any]:
    """The optimizer's `state_dict()` in the format of torch's Adam or AdamW."""
    file = optimizer.state_dict()
    rule, amsgrad = optimizer.method.rule, bool(optimizer.method.rule.sigma)
    b2_of, groups = {}, []
    for group in file["param_groups"]:
        if group.get("memory") is not None or group["decay"] == "fully_decoupled":
            key = "memory" if group.get("memory") is not None else "decay"
            raise ValueError(f"to_torch_state_dict: torch's checkpoints cannot store {key}={group[key]!r}")
        b2_of.update(dict.fromkeys(group["params"], float(group["betas"][1])))
        ours = set(optimizer.defaults) | set(options.INTERNAL)
        groups.append(
            {
                **{k: v for k, v in group.items() if k not in ours or k in TORCHS},
                "amsgrad": amsgrad,
                "decoupled_weight_decay": group["decay"] == "decoupled",
            }
        )
    entries: dict[Any, dict[str, Any]] = {}
    for name, entry in file["state"].items():
        if name not in b2_of:  # not a parameter's
            entries[name] = entry
            continue
        if "row_step" in entry:
            raise ValueError(
                f"to_torch_state_dict: parameter {name!r} has had sparse gradients, and each row has its own step "
                "count; torch's checkpoints have one for all rows"
            )
        entries[name] = {k: state.expanded(entry, k).detach().clone() for k in codes.CODED if k in entry}
        entries[name]["step"] = entry["step"].to(torch.float32)
        t = entry["step"].item()
        if rule.memory is Fading and t > 0:
            entries[name]["exp_avg_sq"] *= math.exp(fading_log_norm(t, b2_of[name]))
    return {"state": entries, "param_groups": groups}


def cast_state_dict(state_dict: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Cast the moments of an adaxopt checkpoint to another dtype, and set `state_dtype` in its groups to match.

    `torch.float32` decodes 8-bit state exactly. `torch.uint8` encodes to 8-bit state, rounded to the nearest code.
    torch.bfloat16 and torch.float64 are cast as by `Tensor.to`. The state is a copy; `load_state_dict` keeps its dtype.

    >>> p = torch.nn.Parameter(torch.ones(2)); from adaxopt import AdaXW
    >>> small = AdaXW([p], state_dtype=torch.uint8); p.grad = torch.ones(2); small.step()
    >>> file = cast_state_dict(small.state_dict(), torch.float32)
    >>> large = AdaXW([p]); large.load_state_dict(file); large.state[p]["exp_avg"].dtype
    torch.float32
    """
    checkpoint.check_form(state_dict)
    if dtype not in options.STATE_DTYPES or dtype is None:
        allowed = ", ".join(str(d) for d in options.STATE_DTYPES if d is not None)
        raise ValueError(f"cast_state_dict: dtype={dtype!r}: must be one of {allowed}")
    if not checkpoint.is_own(state_dict["param_groups"]):
        raise ValueError(
            "cast_state_dict: this is not a checkpoint of adaxopt; load it first, then cast state_dict()"
        )
    groups = [{**group, "state_dtype": options.dtype_name(dtype)} for group in state_dict["param_groups"]]
    entries = {
        name: _cast(entry, dtype) if isinstance(entry, Mapping) else entry
        for name, entry in state_dict["state"].items()
    }
    return {**state_dict, "state": entries, "param_groups": groups}


def _cast(entry: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """A parameter's state with its moments in this dtype."""
    result = {k: v.clone() if isinstance(v, Tensor) else v for k, v in entry.items() if k not in codes.SCALES}
    moments: Mapping[str, Tensor] = {
        k: state.expanded(entry, k) for k in (*codes.CODED, "window") if isinstance(entry.get(k), Tensor)
    }
    if dtype is not torch.uint8:
        for key, value in moments.items():
            result[key] = value.to(dtype.to_complex() if value.is_complex() else dtype)
        return result
    whole = {"row_step", "window"}.isdisjoint(entry)
    if not whole or any(value.is_complex() or shards.is_dtensor(value) for value in moments.values()):
        raise ValueError(
            "state_dtype=torch.uint8: complex, sharded, windowed and row-wise state cannot be in 8 bits; take another "
            "state_dtype for these parameters"
        )
    moments = codes.lose(moments)
    second = moments.get("exp_avg_sq")
    for key, value in moments.items():
        made = codes.create(value, key)
        still = codes.zero_or_lost(second) if second is not None and key == "exp_avg" else None
        codes.encode_(made[key], made[codes.scale_name(key)], value, still=still)
        result.update(made)
    return result


def _load(
    optimizer: Engine, given: Mapping[str, Any], kind: str, taken: tuple[str, ...], log_norm: Any
) -> None:
    """Load a checkpoint of this kind into AdaX, AdaXW or Padax. `taken` are the options to take from the checkpoint."""
    method = getattr(optimizer, "method", None)
    if method is None or not foreign.converts(method):
        raise TypeError(f"load_{kind}_state_dict({type(optimizer).__name__}): must be AdaX, AdaXW or Padax")
    checkpoint.check_form(given)
    if checkpoint.is_own(given["param_groups"]):
        for group in given["param_groups"]:
            if kind != "adamw" or group.get("method") not in foreign.ADAMS:
                checkpoint.check_method(optimizer, group)
                raise ValueError(
                    "this is a checkpoint of adaxopt itself: load it with optimizer.load_state_dict"
                )
        given, log_norm = _decoded(optimizer, given), lambda t, b2: 0.0
    else:
        found = foreign.recognised(given)
        if found.kind != kind:
            raise ValueError(f"load_{kind}_state_dict: {foreign.refusal(found, optimizer)}")
    groups = [
        {
            **mine,
            "params": other["params"],
            **{k: other[k] for k in taken if k in other},
            **(_numbers(mine, other) if taken else {}),
        }
        for mine, other in _paired(optimizer, given)
    ]
    moments = _as_asked(_normalised(given, log_norm), groups)
    checkpoint.load(optimizer, {"state": moments, "param_groups": groups})


def _decoded(optimizer: Engine, given: Mapping[str, Any]) -> dict[str, Any]:
    """A checkpoint of adaxopt's Adam or AdamW with its 8-bit moments as float32."""
    entries = dict(given["state"])
    for i, (mine, group) in enumerate(_paired(optimizer, given)):
        checkpoint.check_format(group["format"])
        group["state_dtype"] = options.dtype_of(group.get("state_dtype"))
        names = zip(mine["params"], group["params"], strict=True)
        found = [(p, name) for p, name in names if name in entries]
        checkpoint.check_rows(i, group, [entries[name] for _, name in found])
        for p, name in found:
            entry = entries[name]
            wrong = state.wrong_codes(entry)
            if wrong is not None:
                raise ValueError(f"checkpoint's parameter {name!r} has {wrong}")
            checkpoint.check_codes(p, entry, group, name)
            entries[name] = {k: state.expanded(entry, k) if k in codes.CODED else entry[k] for k in entry}
    return {"state": entries, "param_groups": given["param_groups"]}


def _numbers(mine: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a group that takes lr, betas and weight_decay from a checkpoint's group: a memory of its own keeps its
    number, and fully decoupled decay, wd*lr/reference_lr, subtracts the checkpoint's wd*lr."""
    (b1, b2), reference = other["betas"], mine["reference_lr"]
    fully = mine["decay"] == "fully_decoupled" and "weight_decay" in other
    measured = isinstance(reference, Tensor) or reference > 0  # if not, `options.check_reference` raises
    return {
        "betas": (b1, b2 if mine.get("memory") is None else mine["betas"][1]),
        **({"total_steps": None} if "total_steps" in mine else {}),  # it has not set this b2
        **({"weight_decay": other["weight_decay"] * reference} if fully and measured else {}),
    }


def _paired(optimizer: Engine, given: Mapping[str, Any]) -> zip[tuple[Any, Any]]:
    """Pairs of this optimizer's groups and copies of the checkpoint's groups."""
    theirs = deepcopy(given["param_groups"])
    checkpoint.check_count(optimizer.param_groups, theirs)
    return zip(optimizer.param_groups, theirs, strict=True)


def _as_asked(entries: dict[Any, Any], groups: list[dict[str, Any]]) -> dict[Any, Any]:
    """Convert moments to the `state_dtype` of the parameter's group, if it has one."""
    dtypes = {name: options.dtype_of(group["state_dtype"]) for group in groups for name in group["params"]}
    return {
        name: entry if (dtype := dtypes.get(name)) is None else _cast(entry, dtype)
        for name, entry in entries.items()
    }


def _normalised(given: Mapping[str, Any], log_norm: Any) -> dict[Any, dict[str, Any]]:
    """The state of a checkpoint with v divided by its norm, and 16-bit moments as float32."""
    b2_of = {name: float(group["betas"][1]) for group in given["param_groups"] for name in group["params"]}
    entries: dict[Any, dict[str, Any]] = {}
    for name, entry in given["state"].items():
        if name not in b2_of:  # not a parameter's
            entries[name] = entry
            continue
        if not entry:
            continue
        missing = sorted({"step", "exp_avg", "exp_avg_sq"} - set(entry))
        if missing:
            raise ValueError(
                f"checkpoint's parameter {name!r} has no {missing[0]!r}: not a checkpoint of this kind"
            )
        step = checkpoint.counted(entry["step"], "step", name)
        if not state.readable(step):
            raise ValueError(
                f"checkpoint's parameter {name!r} has a 'step' without a value (device {step.device}): load the file "
                'with map_location="cpu"'
            )
        t = step.item()
        raw = entry["exp_avg_sq"]
        for key in ("exp_avg", "exp_avg_sq"):
            checkpoint.check_moment(entry[key], key, name)
        real = torch.view_as_real(raw) if raw.is_complex() else raw
        if state.readable(real) and not bool(torch.isfinite(real).all()):
            raise ValueError(
                f"checkpoint's parameter {name!r} has a second moment that is not finite at step {t:.0f}: the code "
                "that wrote it had overflowed. Load only the model's parameters and start with a new optimizer"
            )
        own = {key: entry[key] for key in ("row_step", "compensation") if key in entry}
        entries[name] = {**own, "step": step, "exp_avg": _wide(entry["exp_avg"])}
        shift = log_norm(t, b2_of[name]) if t > 0 else 0.0
        double = raw.to(torch.complex128 if raw.is_complex() else torch.float64)
        # two factors, because exp(shift) may overflow even if the quotient does not
        half = math.exp(-shift / 2)
        entries[name]["exp_avg_sq"] = (double * half * half).to(_wide(raw).dtype)
    return entries


def _wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in state.LOW else t
