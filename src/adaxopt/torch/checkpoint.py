"""Checkpoints: plain tensors and numbers, a format version in every group, and conversion from other code.

`exp_avg_sq` holds the normalised v. The released AdaX code holds v * ((1+b2)^t - 1), torch's AdamW v * (1 - b2^t).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.memory import fading_log_norm, growing_log_norm
from adaxopt.torch import options, state
from adaxopt.torch.layout import same_layout

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


def load(optimizer: Engine, state_dict: dict[str, Any]) -> None:
    """`Optimizer.load_state_dict`, except that state keeps its own dtype and that everything is checked first."""
    state_dict = state_dict.copy()
    for pre_hook in optimizer._optimizer_load_state_dict_pre_hooks.values():
        changed = pre_hook(optimizer, state_dict)
        if changed is not None:
            state_dict = changed
    _check_form(state_dict)
    groups, saved = optimizer.param_groups, deepcopy(state_dict["param_groups"])
    _check_groups(optimizer, groups, saved)
    names = chain.from_iterable(g["params"] for g in saved)
    params = list(chain.from_iterable(g["params"] for g in groups))
    parameter = dict(zip(names, params, strict=True))
    group_of = {p: group for old, group in zip(groups, saved, strict=True) for p in old["params"]}
    new_state: Any = type(optimizer.state)(dict)
    for name, entry in state_dict["state"].items():
        if name in parameter:
            p = parameter[name]
            new_state[p] = {k: _placed(p, k, value, group_of[p], name) for k, value in entry.items()}
            _check_keys(optimizer, new_state[p], name)
        else:
            new_state[name] = entry
    for old, new in zip(groups, saved, strict=True):
        new["params"] = old["params"]
        if "param_names" in old and "param_names" not in new:
            new["param_names"] = old["param_names"]
    optimizer.__setstate__({"state": new_state, "param_groups": saved})
    for post_hook in optimizer._optimizer_load_state_dict_post_hooks.values():
        post_hook(optimizer)


def _check_form(state_dict: Mapping[str, Any]) -> None:
    missing = [key for key in ("state", "param_groups") if key not in state_dict]
    if missing:
        raise ValueError(
            f"checkpoint without {missing[0]!r}: must be what an optimizer's state_dict() gave, with 'state' and "
            "'param_groups'"
        )


def _check_groups(optimizer: Engine, groups: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    if len(groups) != len(saved):
        raise ValueError(f"checkpoint with {len(saved)} parameter groups: this optimizer has {len(groups)}")
    for i, (group, other) in enumerate(zip(groups, saved, strict=True)):
        if len(group["params"]) != len(other["params"]):
            raise ValueError(
                f"checkpoint's group {i} has {len(other['params'])} parameters: this optimizer's has "
                f"{len(group['params'])}"
            )
        version = other.get("format")
        if version is None:
            raise ValueError(
                "checkpoint of another optimizer: its second moment is not the normalised one. Convert it with "
                "adaxopt.load_adamw_state_dict (torch's Adam and AdamW) or adaxopt.load_released_state_dict (the "
                "AdaX authors' code)"
            )
        if version > options.FORMAT:
            raise ValueError(
                f"checkpoint of format {version}: this adaxopt reads up to {options.FORMAT}; upgrade it"
            )
        if other.get("memory") != group["memory"]:
            raise ValueError(
                f"checkpoint of a {other.get('memory')!r} memory: {type(optimizer).__name__} keeps a "
                f"{group['memory']!r} one, so its second moment would mean something else"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when the optimizer was made
            try:
                options.check({**optimizer.defaults, **other}, optimizer.method.rule)
            except (TypeError, ValueError) as error:
                raise ValueError(f"checkpoint's group {i}: {error}") from error


def _check_keys(optimizer: Engine, entry: Mapping[str, Any], name: Any) -> None:
    rule = optimizer.method.rule
    if not entry:
        return
    kept = {
        "step": True,
        "exp_avg": rule.mean != "none",
        "exp_avg_sq": rule.memory is not None,
        "max_exp_avg_sq": rule.maximum,
        "window": rule.mean == "window",
    }
    needed = {key for key, yes in kept.items() if yes}
    missing = sorted(needed - set(entry))
    if missing:
        raise ValueError(
            f"checkpoint's parameter {name!r} has no {missing[0]!r}: this optimizer needs {sorted(needed)}"
        )
    foreign = sorted(key for key, yes in kept.items() if not yes and key in entry)
    if foreign:
        raise ValueError(
            f"checkpoint's parameter {name!r} has {foreign[0]!r}: {type(optimizer).__name__} keeps only "
            f"{sorted(needed)}, so another method wrote it"
        )


def _placed(p: Tensor, key: str, value: Any, group: Mapping[str, Any], name: Any) -> Any:
    """A saved value on the parameter's device, in its own dtype."""
    if key == "step":
        value = torch.as_tensor(value, dtype=torch.float64)
        return value.to(state.step_device(p, {**options.ENGINE_DEFAULTS, **group}))
    if not isinstance(value, Tensor):
        return value
    expected = {
        "row_step": p.shape[: value.dim()],
        "window": (group.get("window", 0), *p.shape),
    }
    shape = tuple(expected.get(key, p.shape))
    if tuple(value.shape) != shape:
        raise ValueError(
            f"checkpoint's parameter {name!r} has {key!r} of shape {tuple(value.shape)}: this parameter needs {shape}"
        )
    value = value.to(p.device)
    return _laid_out(p, state.distributed_as(p, value)) if key in state.STATE else value


def _laid_out(p: Tensor, value: Tensor) -> Tensor:
    """In the parameter's memory order, as state is created: a checkpoint of a contiguous model may be loaded into a
    channels_last one, and the fused kernels serve equal layouts alone."""
    if state.local(p) is not p or value.requires_grad or same_layout(p, value):
        return value
    return torch.empty_like(p, dtype=value.dtype, requires_grad=False).copy_(value)


def load_released_state_dict(optimizer: Engine, state_dict: Mapping[str, Any]) -> None:
    """Load a checkpoint of the released AdaX or AdaXW class into AdaX, AdaXW or Padax.

        v = v_released / ((1+b2)^t - 1)

    Its lr, betas, eps and weight_decay are taken over; everything that the released code did not have keeps this
    optimizer's value. A second moment that has overflowed (after about 887,000 steps in float32) cannot be mended, and
    raises.
    """
    _need_growing(optimizer, "released")
    taken = ("lr", "betas", "eps", "weight_decay")
    _convert(optimizer, state_dict, taken, lambda t, b2: growing_log_norm(t, b2))


def load_adamw_state_dict(optimizer: Engine, state_dict: Mapping[str, Any]) -> None:
    """Load a checkpoint of torch.optim.Adam or AdamW into AdaX, AdaXW or Padax.

        v = v_adam / (1 - b2^t)

    Only m, v and t are taken over: Adam's lr and betas mean other things here, so the hyper-parameters stay this
    optimizer's. After many steps the memory hardly moves (see `stats()`); `restart_memory()` begins it anew.
    """
    _need_growing(optimizer, "adamw")
    for entry in state_dict.get("state", {}).values():
        if "max_exp_avg_sq" in entry:
            raise ValueError("AdamW checkpoint with amsgrad=True: AdaX keeps no running maximum to put it in")
    _convert(optimizer, state_dict, (), lambda t, b2: fading_log_norm(t, b2))


def _need_growing(optimizer: Engine, what: str) -> None:
    if optimizer.param_groups[0].get("memory") != "growing":
        raise TypeError(f"load_{what}_state_dict({type(optimizer).__name__}): must be AdaX, AdaXW or Padax")


def _convert(optimizer: Engine, given: Mapping[str, Any], taken: tuple[str, ...], log_norm: Any) -> None:
    _check_form(given)
    own = optimizer.state_dict()["param_groups"]
    foreign = deepcopy(given["param_groups"])
    if any("format" in group for group in foreign):
        raise ValueError("this is a checkpoint of adaxopt itself: load it with optimizer.load_state_dict")
    if len(own) != len(foreign):
        raise ValueError(f"checkpoint with {len(foreign)} parameter groups: this optimizer has {len(own)}")
    if any("betas" not in group for group in foreign):
        raise ValueError("checkpoint whose groups have no 'betas': not a checkpoint of this kind")
    groups = [
        {**mine, "params": other["params"], **{k: other[k] for k in taken if k in other}}
        for mine, other in zip(own, foreign, strict=True)
    ]
    b2_of = {name: float(group["betas"][1]) for group in foreign for name in group["params"]}
    entries: dict[Any, dict[str, Any]] = {}
    for name, entry in given["state"].items():
        if not entry:
            continue
        missing = sorted({"step", "exp_avg", "exp_avg_sq"} - set(entry))
        if missing:
            raise ValueError(
                f"checkpoint's parameter {name!r} has no {missing[0]!r}: not a checkpoint of this kind"
            )
        t = float(entry["step"])
        raw = entry["exp_avg_sq"]
        if not bool(torch.isfinite(torch.view_as_real(raw) if raw.is_complex() else raw).all()):
            raise ValueError(
                f"checkpoint's parameter {name!r} has a second moment that is not finite at step {t:.0f}: the code "
                "that wrote it had overflowed. Load the parameters alone and begin the optimizer anew"
            )
        entries[name] = {"step": torch.tensor(t, dtype=torch.float64), "exp_avg": _wide(entry["exp_avg"])}
        shift = log_norm(t, b2_of[name]) if t > 0 else 0.0
        double = raw.to(torch.complex128 if raw.is_complex() else torch.float64)
        # two factors, because exp(shift) alone may overflow where the quotient does not
        half = math.exp(-shift / 2)
        entries[name]["exp_avg_sq"] = (double * half * half).to(_wide(raw).dtype)
    load(optimizer, {"state": entries, "param_groups": groups})


def _wide(t: Tensor) -> Tensor:
    return t.float() if t.dtype in state.LOW else t
