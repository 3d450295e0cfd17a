"""Helpers for training loops: weight-decay groups, clipping with sparse gradients, steps inside backward."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from adaxopt.torch import private, shards, state

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine


NORMS = (nn.LayerNorm, nn.RMSNorm)
"""Norms whose parameters may have two or more dimensions. Parameters of other norms have one, like biases."""


def param_groups(
    model: nn.Module, weight_decay: float, *, no_decay: str | Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Split parameters into two groups: with weight decay, and without it.

    Biases, parameters of norms and all parameters of fewer than two dimensions do not decay. `no_decay` excludes more
    parameters, by the end of their names (`("pos_embed", "tok.weight")`); a name that matches no parameter raises
    ValueError. A tied parameter may be given by any of its names.

    >>> groups = param_groups(nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3)), weight_decay=5e-2)
    >>> [(g["weight_decay"], len(g["params"])) for g in groups]
    [(0.05, 1), (0.0, 3)]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"param_groups: a {type(model).__name__} was given; it must be the model itself (a torch.nn.Module), "
            "because names and modules determine which parameters do not decay"
        )
    more = (no_decay,) if isinstance(no_decay, str) else tuple(no_decay)
    named = list(model.named_parameters(remove_duplicate=False))
    for end in more:
        if not any(name.endswith(end) for name, _ in named):
            raise ValueError(
                f"no_decay={end!r}: no parameter name ends with it; names are those of model.named_parameters()"
            )
    excluded = {id(p) for name, p in named if name.endswith(more)}
    of_norms = {id(p) for m in model.modules() if isinstance(m, NORMS) for p in m.parameters(recurse=False)}
    decay: list[Tensor] = []
    rest: list[Tensor] = []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        last = name.rpartition(".")[2]  # bias, in_proj_bias, bias_k
        bias = last.endswith("bias") or last.startswith("bias_")
        plain = p.dim() < 2 or bias or id(p) in of_norms or id(p) in excluded
        (rest if plain else decay).append(p)
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return [g for g in groups if g["params"]]


@torch.no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """`torch.nn.utils.clip_grad_norm_`, for any mixture of dense, sparse and DTensor gradients.

    Returns the total norm before clipping: a DTensor if all gradients are DTensors of one mesh, as torch does,
    otherwise a plain tensor. The norm of a sparse gradient is that of its coalesced values; it is coalesced and scaled
    in place. If there are also DTensors, a plain gradient counts once and must be the same on every process.

    >>> e = nn.Embedding(5, 2, sparse=True); e(torch.tensor([1, 1])).sum().backward()
    >>> clip_grad_norm_(e.parameters(), 1.0)
    tensor(2.8284)
    """
    params = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    grads = [p.grad for p in params if p.grad is not None]
    meshes = {getattr(g, "device_mesh", None) for g in grads}
    if meshes <= {None} and not any(g.is_sparse for g in grads):
        return nn.utils.clip_grad_norm_(params, max_norm, norm_type, error_if_nonfinite, foreach)
    for g in grads:
        if g.is_sparse and not g.is_coalesced():
            g.copy_(g.coalesce())  # in place, so that the step does not coalesce again
    parts = [shards.with_norm_of(g, norm_type) for g in grads]
    norm = nn.utils.get_total_norm(parts, norm_type, error_if_nonfinite, foreach)
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for g in grads:
        (private.stored(g)[1] if g.is_sparse else shards.local(g)).mul_(factor.to(g.device))
    return shards.on_mesh(norm, meshes.pop()) if len(meshes) == 1 else norm


@torch.no_grad()
def float32_weights(optimizer: Engine) -> dict[Tensor, Tensor]:
    """The full values of all parameters, with the correction bits of `rounding="24bit"` or the Kahan compensation.

    >>> from adaxopt import AdaXW
    >>> p = nn.Parameter(torch.ones(1, dtype=torch.bfloat16)); o = AdaXW([p], lr=1e-2, rounding="24bit")
    >>> p.grad = torch.ones_like(p); o.step(); p.item(), round(float32_weights(o)[p].item(), 4)
    (1.0, 0.9985)

    Values are new tensors of the parameter's shape in float32, for evaluation or export. float64 and complex parameters
    keep their dtype; a DTensor gives this process's part.
    """
    full = {}
    for p in (p for group in optimizer.param_groups for p in group["params"]):
        entry = optimizer.state.get(p, {})
        full[p] = p.detach().clone() if p.is_complex() else state.full_value(p, entry).clone()
    return full


class StepInBackward:
    """Hooks that step each parameter as soon as its gradient is computed. `remove()` removes them."""

    def __init__(self, optimizer: Engine) -> None:
        if not hasattr(optimizer, "step_parameter"):
            kind = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
            raise TypeError(
                f"step_in_backward: a {kind} was given; must be an optimizer of adaxopt, which can step a single "
                "parameter"
            )

        def step(p: Tensor) -> None:
            if shards.many_processes() and not shards.is_dtensor(p):
                optimizer._warn_once(
                    "step_in_backward: the step uses this process's own gradient; DistributedDataParallel averages "
                    "gradients only afterwards, so its replicas diverge. Use fully_shard, or optimizer.step()"
                )
            optimizer.step_parameter(p)
            optimizer._opt_called = True  # type: ignore[attr-defined]  # read by schedulers
            p.grad = None

        self._handles = [
            p.register_post_accumulate_grad_hook(step)
            for group in optimizer.param_groups
            for p in group["params"]
            if p.requires_grad
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


def step_in_backward(optimizer: Engine) -> StepInBackward:
    """Step each parameter and free its gradient inside `backward()`, so that few gradients exist at once.

    >>> from adaxopt import AdaXW
    >>> model = nn.Linear(2, 2); optimizer = AdaXW(model.parameters())
    >>> hooks = step_in_backward(optimizer)                     # replaces optimizer.step()
    >>> model(torch.ones(1, 2)).sum().backward()
    >>> all(p.grad is None for p in model.parameters()), optimizer.stats()[0]["step"]
    (True, 1.0)

    Gradients cannot be clipped by their total norm, accumulated over batches or unscaled by GradScaler: train in
    bfloat16, or without scaling. It works with `fully_shard`, not with DistributedDataParallel, whose replicas would
    diverge (a warning is given). Schedulers work as usual; `optimizer.step()` finds no gradient and does nothing. Step
    hooks (`register_step_pre_hook`, `register_step_post_hook`) are not called.
    """
    return StepInBackward(optimizer)
