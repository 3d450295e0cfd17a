"""All private APIs of torch and Triton that this package uses, each with a public fallback.

If a release renames or removes one, a step becomes slower, but nothing breaks. No other module uses a private API (a
test checks the sources), and tests hide each API and run its fallback.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer


def _found(path: str) -> Any:
    """The attribute of torch with this dotted name, or None."""
    try:
        return functools.reduce(getattr, path.split("."), torch)
    except (AttributeError, ImportError):
        return None


# -- operations on lists -------------------------------------------------------------------------------------------


def _foreach(name: str) -> Callable[..., Any]:
    """`torch._foreach_<name>`, or a loop over tensors in which list arguments are indexed in parallel."""

    def one_by_one(tensors: Sequence[Tensor], *given: Any, **options: Any) -> list[Tensor]:
        def one(t: Tensor, i: int) -> Any:
            arguments = [a[i] if isinstance(a, (list, tuple)) else a for a in given]
            if name == "maximum_":
                return torch.maximum(t, *arguments, out=t)
            return getattr(t, name)(*arguments, **options)

        return [one(t, i) for i, t in enumerate(tensors)]

    return _found(f"_foreach_{name}") or one_by_one


foreach_add, foreach_add_ = _foreach("add"), _foreach("add_")
foreach_addcdiv_, foreach_addcmul_ = _foreach("addcdiv_"), _foreach("addcmul_")
foreach_clamp_max, foreach_clamp_max_ = _foreach("clamp_max"), _foreach("clamp_max_")
foreach_clamp_min_, foreach_copy_ = _foreach("clamp_min_"), _foreach("copy_")
foreach_div, foreach_div_ = _foreach("div"), _foreach("div_")
foreach_lerp_, foreach_maximum_ = _foreach("lerp_"), _foreach("maximum_")
foreach_mul, foreach_mul_ = _foreach("mul"), _foreach("mul_")
foreach_neg, foreach_zero_ = _foreach("neg"), _foreach("zero_")
foreach_pow, foreach_pow_, foreach_sqrt = _foreach("pow"), _foreach("pow_"), _foreach("sqrt")
foreach_sub, foreach_sub_ = _foreach("sub"), _foreach("sub_")

fused_adam_, fused_adamw_ = _found("_fused_adam_"), _found("_fused_adamw_")
"""torch's fused CPU kernels, or None; `fused_cpu` is not used then."""

_inside = _found("ops.aten.hardtanh_backward")
_SMALL = 2.0**-1074


def where_zero(g: Tensor, v: Tensor) -> Tensor:
    """g where v (>= 0) is 0, else 0, also where g is inf or NaN. Computed as the (vectorised) derivative of a clamp."""
    least = torch.finfo(v.dtype).tiny * torch.finfo(v.dtype).eps
    if _inside is None or not _SMALL > 0:
        # torch.set_flush_denormal(True), which also affects Python floats
        return torch.where(v == 0, g, 0.0)
    found: Tensor = _inside(g, v, -0.5, least)
    return found


# -- properties of tensors -----------------------------------------------------------------------------------------


def alike(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """A function that returns whether other tensors have the same types, devices, shapes and strides as these.

    torch's compiler checks all tensors in one call. The function holds no reference to a tensor. It returns False if a
    tensor is passed twice.
    """
    guards = _found("_C._dynamo.guards.TensorGuards")
    try:
        check: Callable[..., bool] = guards(
            *tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
        ).check
        if check(*tensors) is True:
            return check
    except (AttributeError, TypeError, RuntimeError):
        pass
    known = list(map(_looks, tensors))
    return lambda *now: list(map(_looks, now)) == known


def _looks(t: Tensor | None) -> tuple[Any, ...]:
    if t is None or t.layout != torch.strided:
        return ()
    return type(t), t.dtype, t.device, t.shape, t.stride(), t.is_neg()


def versions(tensors: Sequence[Tensor]) -> list[int] | None:
    """torch's version counters, or None if a tensor has none, so that modifications cannot be detected."""
    try:
        return [t._version for t in tensors]
    except (AttributeError, RuntimeError):  # inference tensors
        return None


def is_fake(t: Tensor) -> bool:
    """Whether `t` is a fake tensor. None exist before torch has imported their module."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(t, getattr(module, "FakeTensor", ()))


def local_part(t: Any) -> Tensor:
    """This process's part of a DTensor, outside autograd."""
    part: Tensor | None = getattr(t, "_local_tensor", None)
    whole: Tensor = t.detach().to_local() if part is None else part
    return whole


def first_row(p: Any) -> int:
    """The global index of the first row of this process's part, for a DTensor whose parts are consecutive rows."""
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as place
    except ImportError:
        pass
    else:
        return int(place(p.shape, p.device_mesh, p.placements)[1][0])
    first, rows = 0, int(p.shape[0])
    for size, at, placement in zip(
        p.device_mesh.shape, p.device_mesh.get_coordinate(), p.placements, strict=True
    ):
        if placement.is_shard():
            if type(placement).__name__ != "Shard":
                raise ValueError(
                    f"{placement}: this torch does not give the offset of such parts; use Shard(0)"
                )
            part = -(-rows // size)
            begin = min(at * part, rows)
            first, rows = first + begin, min(part, rows - begin)
    return first


def stored(g: Tensor) -> tuple[Tensor, Tensor]:
    """Indices and values of a sparse tensor, without coalescing; values may be modified in place."""
    try:
        return g._indices(), g._values()
    except AttributeError:
        return g.indices(), g.values()  # for coalesced tensors only


def is_empty(g: Tensor) -> bool:
    """Whether a sparse tensor has no entries."""
    count = getattr(g, "_nnz", None)
    return (g.coalesce().values().shape[0] if count is None else count()) == 0


# -- the step of an optimizer --------------------------------------------------------------------------------------

set_grad_enabled: Callable[[bool], Any] = _found("_C._set_grad_enabled") or torch.set_grad_enabled
disable_dynamo: Callable[..., Any] = _found("_disable_dynamo") or torch.compiler.disable


def _untraced() -> None:
    """Call a function that is never traced; created here, because torch.compiler.disable imports the compiler."""
    torch.compiler.disable(lambda: None)()


def graph_break() -> None:
    """Insert a graph break."""
    (_found("_dynamo.graph_break") or _untraced)()


def lightly_hooked(step: Callable[..., Any]) -> Any:
    """torch's wrapper around a step (hooks, a profiler range), used only if there are hooks or a profiler is active.

    The profiler range costs about 10 us, a sixth of a small network's step. If this torch has no such wrapper, the step
    is returned unchanged, and torch wraps it itself.
    """
    wrapper = getattr(Optimizer, "profile_hook_step", None)
    if wrapper is None:
        return step
    full: Any = wrapper(step)
    names = ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    everywhere = [getattr(sys.modules.get("torch.optim.optimizer"), name, None) for name in names]
    full.hooked = True
    if None in everywhere or not hasattr(torch.autograd.profiler, "_is_profiler_enabled"):
        return full
    before, after = everywhere

    @functools.wraps(step)
    def light(self: Any, *args: Any, **kwargs: Any) -> Any:  # hooks see the arguments as they were given
        own = getattr(self, "_optimizer_step_pre_hooks", True) or getattr(
            self, "_optimizer_step_post_hooks", True
        )
        if own or before or after or torch.autograd.profiler._is_profiler_enabled:
            return full(self, *args, **kwargs)
        return step(self, *args, **kwargs)

    light.hooked = True  # type: ignore[attr-defined]
    return light


def loading_hooks(optimizer: Optimizer, when: str) -> Iterator[Callable[..., Any]]:
    """The "pre" or "post" hooks registered for `load_state_dict`."""
    return iter(getattr(optimizer, f"_optimizer_load_state_dict_{when}_hooks", {}).values())


# -- callers of `step` ---------------------------------------------------------------------------------------------

# Two functions of torch call `step` for another purpose than training, and pass no argument that says so. They are
# recognised on the call stack. If a release renames one, it gets an ordinary step.

CHECKPOINT = "torch.distributed.checkpoint.state_dict"
ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


def asks_for_state_only() -> bool:
    """Whether torch.distributed.checkpoint calls `step` to create the state of an optimizer that has never stepped.

    It sets lr and all gradients to 0 for that call, but neither identifies it: the first step of a warm-up from 0 also
    has lr 0, and a rank may hold parameters whose gradients are all zero, or no elements. Such a rank must count the
    step like the others.
    """
    return any(frame.f_code.co_name == "_init_optim_state" for frame in _frames_of(CHECKPOINT))


def whole_param_groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The param groups of the ZeroRedundancyOptimizer that this optimizer is a part of, or else its own."""
    if not torch.compiler.is_compiling():
        for frame in _frames_of(ZERO):
            owner = frame.f_locals.get("self")
            if getattr(owner, "optim", None) is optimizer:
                groups: list[dict[str, Any]] = owner.param_groups  # type: ignore[union-attr]
                return groups
    return optimizer.param_groups


def _frames_of(module: str) -> Iterator[FrameType]:
    frame = sys._getframe(1) if module in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            yield frame
        frame = frame.f_back


# -- the GPU -------------------------------------------------------------------------------------------------------

current_device: Callable[[], int] = _found("_C._cuda_getDevice") or torch.cuda.current_device
raw_stream: Callable[[int], int] = _found("_C._cuda_getCurrentRawStream") or (
    lambda device: torch.cuda.current_stream(device).cuda_stream
)


def bare_launch(
    kernel: Any, tables: Sequence[Tensor], example: Sequence[Any], named: dict[str, Any], how: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], Any] | None:
    """(run, its first arguments, the compiled kernel) of a Triton kernel for these tables, or None.

    `run` takes plain integers and avoids the overhead of Triton's launcher. None is returned if this Triton does not
    offer it, or offers another interface. The compiled kernel must be kept as long as `run`: new releases unload it
    when it is no longer referenced.
    """
    try:
        compiled = kernel.warmup(*tables, *example, **named, grid=(1,), **how)
        compiled = compiled.result() if hasattr(compiled, "result") else compiled
        run = compiled.run  # loads the kernel; the attributes below exist only afterwards
        bare = (t.data_ptr() for t in tables)
        return run, (compiled.function, compiled.packed_metadata, None, None, None, *bare), compiled
    except Exception:  # if the kernel itself fails, Triton's own launcher will raise
        return None
