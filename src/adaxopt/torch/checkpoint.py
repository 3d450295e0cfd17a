"""Loading of checkpoints. They hold tensors and plain numbers; every group stores a format version and the method.

Everything is checked before anything is changed. `convert.py` reads checkpoints of other code.
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

from adaxopt.bounds import plain
from adaxopt.memories import Growing
from adaxopt.torch import codes, convert, foreign, options, private, shards, state
from adaxopt.torch.groups import outside, refuse_fixed
from adaxopt.torch.layout import FLOATS, same_layout

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


def load(optimizer: Engine, state_dict: dict[str, Any]) -> None:
    """`Optimizer.load_state_dict`, except that state keeps its own dtype and that everything is checked first."""
    check_mapping(state_dict)
    state_dict = state_dict.copy()
    for pre_hook in private.loading_hooks(optimizer, "pre"):
        changed = pre_hook(optimizer, state_dict)
        if changed is not None:
            state_dict = changed
    check_form(state_dict)
    groups, saved = optimizer.param_groups, deepcopy(state_dict["param_groups"])
    if not is_own(saved):
        found = foreign.recognised(state_dict)
        if not foreign.is_torchs(found, optimizer.method):
            raise ValueError(foreign.refusal(found, optimizer))
        state_dict = convert.from_torch(optimizer, state_dict)
        saved = state_dict["param_groups"]
    for group in saved:
        group["state_dtype"] = options.dtype_of(group.get("state_dtype"))
    _check_groups(optimizer, groups, saved)
    names = chain.from_iterable(g["params"] for g in saved)
    params = list(chain.from_iterable(g["params"] for g in groups))
    parameter = dict(zip(names, params, strict=True))
    group_of = {p: group for old, group in zip(groups, saved, strict=True) for p in old["params"]}
    new_state: Any = type(optimizer.state)(dict)
    for name, entry in state_dict["state"].items():
        if name in parameter:
            p = parameter[name]
            coded = _coded(p, entry, name)
            others = [k for k in entry if k not in codes.SCALES and k not in coded]
            if not _compensates(entry.get("compensation"), group_of[p]):
                others.remove("compensation")
            new_state[p] = {**{k: _placed(p, k, entry[k], group_of[p], name) for k in others}, **coded}
            _check_keys(optimizer, new_state[p], name)
            check_codes(p, new_state[p], group_of[p], name)
        else:
            new_state[name] = entry
    for i, (old, new) in enumerate(zip(groups, saved, strict=True)):
        check_rows(i, new, [new_state[p] for p in old["params"] if p in new_state])
        new["params"], new["format"] = old["params"], options.FORMAT
        if "param_names" in old and "param_names" not in new:
            new["param_names"] = old["param_names"]
    _warn_of_run_length(optimizer, saved)
    optimizer.__setstate__({"state": new_state, "param_groups": saved})
    for post_hook in private.loading_hooks(optimizer, "post"):
        post_hook(optimizer)


def check_mapping(state_dict: Any) -> None:
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"checkpoint of type {type(state_dict).__name__}: must be the dict that an optimizer's state_dict() gave"
        )


def check_form(state_dict: Mapping[str, Any]) -> None:
    check_mapping(state_dict)
    missing = [key for key in ("state", "param_groups") if key not in state_dict]
    if missing:
        raise ValueError(
            f"checkpoint without {missing[0]!r}: must be what an optimizer's state_dict() gave, with 'state' and "
            "'param_groups'"
        )
    for key, kind in (("state", Mapping), ("param_groups", (list, tuple))):
        if not isinstance(state_dict[key], kind):
            raise ValueError(
                f"checkpoint whose {key!r} is a {type(state_dict[key]).__name__}: not an optimizer's"
            )

    for i, group in enumerate(state_dict["param_groups"]):
        if not isinstance(group, Mapping) or "params" not in group:
            raise ValueError(f"checkpoint's group {i} is {group!r:.80}: must be a dict with 'params'")
    for name in chain.from_iterable(group["params"] for group in state_dict["param_groups"]):
        entry = state_dict["state"].get(name, {})
        if not isinstance(entry, Mapping):
            raise ValueError(
                f"checkpoint's parameter {name!r} has a state of type {type(entry).__name__}: must be a dict"
            )


def is_own(groups: list[Any]) -> bool:
    """Whether this package wrote all of these groups. Raises ValueError if it wrote only some."""
    written = ["format" in group for group in groups]
    if any(written) and not all(written):
        raise ValueError(
            f"checkpoint's group {written.index(False)} has no options: it was saved from an optimizer with other "
            "parameter groups; load it into one with the same groups, or save and load it with "
            "StateDictOptions(flatten_optimizer_state_dict=True)"
        )
    return all(written)


def check_count(groups: list[Any], saved: list[Any]) -> None:
    """Raise ValueError unless there are as many groups, and as many parameters in each."""
    if len(groups) != len(saved):
        s = "" if len(saved) == 1 else "s"
        raise ValueError(
            f"checkpoint with {len(saved)} parameter group{s}: this optimizer has {len(groups)}; build it with the "
            "same groups as the optimizer that wrote the checkpoint"
        )
    for i, (group, other) in enumerate(zip(groups, saved, strict=True)):
        if len(group["params"]) != len(other["params"]):
            raise ValueError(
                f"checkpoint's group {i} has {len(other['params'])} parameters: this optimizer's has "
                f"{len(group['params'])}"
            )


def _check_groups(optimizer: Engine, groups: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    check_count(groups, saved)
    for i, other in enumerate(saved):
        check_method(optimizer, other)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the constructor has already warned
            try:
                options.complete(other, optimizer.defaults)
                options.check(other, optimizer.method.rule)
                options.check_reference(other)
                refuse_fixed(optimizer, other)
            except (TypeError, ValueError) as error:
                raise ValueError(f"checkpoint's group {i}: {error}") from error


def _warn_of_run_length(optimizer: Engine, saved: list[dict[str, Any]]) -> None:
    """Warn where `total_steps` or `memory=Growing(b2)` was given to the constructor and the checkpoint has another b2
    or another memory: one warning for all groups with the same numbers."""
    own = optimizer.method.rule.memory
    found: dict[tuple[str, str, str, str], list[int]] = {}
    for i, (group, other) in enumerate(zip(optimizer.param_groups, saved, strict=True)):
        total, memory, b2 = group.get("total_steps"), other.get("memory"), other["betas"][1]
        if total is None and group.get("memory") != Growing.kind:
            continue
        wanted = group["betas"][1] if total is None else Growing.over(total).number
        if memory != Growing.kind and (memory is not None or own is not Growing):
            what = f"memory={memory!r}"
        elif plain(b2) and plain(wanted) and b2 != wanted:
            what = f"b2={b2:g} (total_steps={other.get('total_steps')})"
        else:
            continue
        given = f"memory=Growing({wanted!r})" if total is None else f"total_steps={total}"
        options = "".join(f", {key}={group[key]!r}" for key in ("total_steps", "memory") if key in group)
        found.setdefault((given, what, repr(wanted), options), []).append(i)
    for (given, what, number, options), places in found.items():
        where = f"group{'s' if places[1:] else ''} {', '.join(map(str, places))}"
        warnings.warn(
            f"{given}: not used in {where}, because {what} comes from the checkpoint. To continue with b2 = {number}, "
            f"run after loading: for i in {places}: g = optimizer.param_groups[i]; g.update(betas=(g['betas'][0], "
            f"{number}){options})",
            stacklevel=outside(),
        )


def check_method(optimizer: Engine, other: Mapping[str, Any]) -> None:
    """Raise ValueError for a group of another method or of another format version."""
    name, method = type(optimizer).__name__, optimizer.method
    check_format(other["format"])
    if other.get("method") != method.name:
        amsgrad = foreign.with_amsgrad(optimizer, (other.get("method"),))
        do = "load it into the class that wrote it"
        if amsgrad is not None:
            do = f"build {name} with amsgrad={amsgrad}"
        elif other.get("method") in foreign.ADAMS and foreign.converts(method):
            do = "convert it with adaxopt.load_adamw_state_dict"
        raise ValueError(
            f"checkpoint of method {other.get('method')!r}: this optimizer is {name} ({method.name!r}), whose "
            f"options and state mean something else; {do}, or load the model's parameters alone"
        )


def check_format(version: Any) -> None:
    known = (options.FORMAT, options.FORMAT_ROWS)
    if version not in known or not isinstance(version, int):
        raise ValueError(
            f"checkpoint of format {version!r}: this adaxopt reads formats {known[0]} and {known[1]}"
        )


def _compensates(value: Any, group: Mapping[str, Any]) -> bool:
    """Whether a compensation, if there is one, has the form of the group's rounding. `dcp.load` copies the correction
    bits of 24-bit weights into the Kahan compensation of an optimizer that was built with "kahan", and the reverse."""
    if not isinstance(value, Tensor) or group.get("rounding") not in ("kahan", "24bit"):
        return True
    return bool((value.dtype == torch.int8) == (group["rounding"] == "24bit"))


def check_rows(i: int, group: Mapping[str, Any], entries: list[dict[str, Any]]) -> None:
    """Raise ValueError if step counts per row were saved and are missing, as after `dcp.load` into a new optimizer."""
    if group["format"] == options.FORMAT_ROWS and not any("row_step" in entry for entry in entries):
        raise ValueError(
            f"checkpoint's group {i} was saved with a step count for every row of a sparse parameter, and they are "
            "missing: dcp.load reads only state that the new optimizer has; take one step with sparse gradients before "
            "dcp.load, or save and load optimizer.state_dict() itself"
        )


def _check_keys(optimizer: Engine, entry: Mapping[str, Any], name: Any) -> None:
    rule = optimizer.method.rule
    if not entry:
        return
    needed = {"step", *state.kept(rule), *(("window",) if rule.mean == "window" else ())}
    missing = sorted(needed - set(entry))
    if missing:
        raise ValueError(
            f"checkpoint's parameter {name!r} has no {missing[0]!r}: this optimizer needs {sorted(needed)}"
        )
    others = sorted({*codes.CODED, "window"} & set(entry) - needed)
    if others:
        raise ValueError(
            f"checkpoint's parameter {name!r} has {others[0]!r}: {type(optimizer).__name__} keeps only "
            f"{sorted(needed)}, so another method wrote it"
        )


def check_codes(p: Tensor, entry: Mapping[str, Any], group: Mapping[str, Any], name: Any) -> None:
    """Raise ValueError for 8-bit codes in float moments: `dcp.load` copies 8-bit state into the float moments of an
    optimizer that was built without it. Other float moments in such a group are valid, because `state_dtype` may be set
    later."""
    moments = [entry[key] for key in codes.CODED if key in entry and not codes.is_coded(entry[key])]
    seen = [shards.local(value) for value in moments]
    if group["state_dtype"] is not torch.uint8 or not seen or state.cuts_groups(p):
        return
    if not all(map(state.readable, seen)) or not any(bool(value.any()) for value in seen):
        return
    if all(bool((value == value.round()).all()) for value in seen if not value.is_complex()):
        raise ValueError(
            f"checkpoint's parameter {name!r} has moments of {moments[0].dtype} that are whole numbers, in a group "
            "with state_dtype=torch.uint8: they are 8-bit codes; build this optimizer with state_dtype=torch.uint8 to "
            "load them (adaxopt.cast_state_dict then expands its state_dict())"
        )


def _placed(p: Tensor, key: str, value: Any, group: Mapping[str, Any], name: Any) -> Any:
    """A saved value on the parameter's device. Its dtype is kept."""
    if key == "step":
        step, device = counted(value, key, name), state.step_device(p, {**options.ENGINE_DEFAULTS, **group})
        if step.is_meta and device.type != "meta":
            raise ValueError(
                f"checkpoint's parameter {name!r} has a 'step' without a value (device meta): load the file with "
                'map_location="cpu"'
            )
        return step.reshape(()).to(device)
    if key == "row_step":
        value = counted(value, key, name)
    elif key == "compensation" and isinstance(value, Tensor) and value.dtype == torch.int8:
        pass  # the correction bits of rounding="24bit"
    elif key in (*state.STATE, "window"):
        check_moment(value, key, name, p)
    elif not isinstance(value, Tensor):
        return value
    expected = {"row_step": p.shape[: value.dim()], "window": (group.get("window", 0), *p.shape)}
    shape = tuple(expected.get(key, p.shape))
    if tuple(value.shape) != shape:
        raise ValueError(
            f"checkpoint's parameter {name!r} has {key!r} of shape {tuple(value.shape)}: this parameter needs {shape}"
        )
    if shards.is_dtensor(value) and not shards.is_dtensor(p):
        raise ValueError(
            f"checkpoint's parameter {name!r} has a sharded {key!r} (DTensor), and this parameter is not sharded: save "
            "it with get_optimizer_state_dict(..., options=StateDictOptions(full_state_dict=True))"
        )
    value = value.to(p.device)
    return _laid_out(p, shards.distributed_as(p, value)) if key in state.STATE else value


def _coded(p: Tensor, entry: Mapping[str, Any], name: Any) -> dict[str, Tensor]:
    """The 8-bit moments of an entry and their scales, on the parameter's device and in its memory order.

    Groups of 32 elements are consecutive in memory, so another memory order requires other codes.
    """
    wrong = state.wrong_codes(entry)
    if wrong is not None:
        raise ValueError(f"checkpoint's parameter {name!r} has {wrong}")
    placed: dict[str, Tensor] = {}
    for key in (key for key in codes.CODED if codes.is_coded(entry.get(key))):
        value: Tensor = entry[key]
        if p.is_complex() or value.shape != p.shape:
            what = "complex" if p.is_complex() else "of another shape"
            raise ValueError(
                f"checkpoint's parameter {name!r} has {key!r} in 8 bits of shape {tuple(value.shape)}: this parameter "
                f"is {what} ({tuple(p.shape)}); adaxopt.cast_state_dict(state_dict, torch.float32) expands a checkpoint"
            )
        placed.update(_coded_as(p, key, value, entry[codes.scale_name(key)]))
    return placed


def _coded_as(p: Tensor, key: str, value: Tensor, scale: Tensor) -> dict[str, Tensor]:
    """Codes with the device, the memory order and the placements of this parameter."""
    kept = codes.scale_name(key)
    if shards.is_dtensor(p):
        whole = not shards.is_dtensor(value)
        if whole and state.cuts_groups(p):
            return {key: shards.distributed_as(p, codes.decode(value, scale).to(p.device))}
        if whole:
            scale = scale.reshape(p.shape[0], -1)
        return {k: shards.distributed_as(p, t.to(p.device)) for k, t in ((key, value), (kept, scale))}
    if same_layout(p, value):
        return {key: value.to(p.device), kept: scale.reshape(-1).to(p.device)}
    other = codes.create(p, key)
    codes.encode_(other[key], other[kept], codes.decode(value, scale).to(p.device))
    return other


def counted(value: Any, key: str, name: Any) -> Tensor:
    """A step count, or one per row, as float64. Raises ValueError unless all are whole numbers >= 0."""
    try:
        dtype = torch.float64 if isinstance(value, float) else None
        t = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=dtype, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        t = None
    if t is None or t.is_complex() or t.dtype == torch.bool or t.layout != torch.strided:
        shown = value.dtype if isinstance(value, Tensor) else repr(value)
        raise ValueError(
            f"checkpoint's parameter {name!r} has {key!r} of {shown}: must be whole numbers >= 0"
        )
    if key == "step" and t.numel() != 1:
        raise ValueError(
            f"checkpoint's parameter {name!r} has 'step' of shape {tuple(t.shape)}: must be one number"
        )
    t = t.detach().to(torch.float64)
    seen = shards.local(t)
    if state.readable(seen):
        wrong = seen[~((seen >= 0) & (seen < math.inf) & (seen == seen.floor()))]
        if len(wrong):
            raise ValueError(
                f"checkpoint's parameter {name!r} has {key!r}={wrong[0].item():g}: must be a whole number >= 0"
            )
    return t


def check_moment(value: Any, key: str, name: Any, p: Tensor | None = None) -> None:
    """Raise ValueError unless a moment is a dense floating-point tensor, complex exactly if its parameter is."""
    shown = (
        f"{value.dtype} in {value.layout}" if isinstance(value, Tensor) else f"type {type(value).__name__}"
    )
    of = "floating point or complex" if p is None else "complex" if p.is_complex() else "floating point"
    fits = (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.dtype in (*FLOATS, torch.complex64, torch.complex128)
        and (p is None or value.is_complex() == p.is_complex())
    )
    if not fits:
        raise ValueError(
            f"checkpoint's parameter {name!r} has {key!r} of {shown}: must be a dense {of} tensor"
        )
    seen = shards.local(value)
    if key in codes.CODED[1:] and not seen.is_complex() and state.readable(seen) and bool((seen < 0).any()):
        least = seen.min().item()
        raise ValueError(f"checkpoint's parameter {name!r} has {key!r} down to {least:g}: must be >= 0")


def _laid_out(p: Tensor, value: Tensor) -> Tensor:
    """The value in the parameter's memory order, like newly created state. A checkpoint of a contiguous model may be
    loaded into a channels_last model, and the fused kernels require equal layouts."""
    if shards.is_dtensor(p) or value.requires_grad or same_layout(p, value):
        return value
    return torch.empty_like(p, dtype=value.dtype, requires_grad=False).copy_(value)
