"""Statistics of an optimizer's state: gain, quantiles of v, size of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from adaxopt.memories import Growing
from adaxopt.rule import TINY, denominator
from adaxopt.torch import codes
from adaxopt.torch.hyper import floats
from adaxopt.torch.state import expanded, real

if TYPE_CHECKING:
    from adaxopt.torch.engine import Engine

QUANTILES = (0.05, 0.5, 0.95)
SAMPLE = 1 << 20
"""Quantiles are taken of at most this many evenly spaced entries of a group."""


@torch.no_grad()
def stats(optimizer: Engine) -> list[dict[str, float]]:
    """One dict per group, about the parameters that have been stepped:

    step          the largest step count
    b2_steps      b2*t so far (3 at the end of a run with `total_steps`)
    gain          k_t: the weight of the newest square in v
    horizon       1/k_t: the number of steps over which v averages; infinite once v no longer changes
    v_q05, v_q50, v_q95   quantiles of v, of coordinates that have received a gradient and whose v is finite
    inactive      share of coordinates that have received no gradient yet (v = 0)
    lost          share of coordinates whose v, or its running maximum, is infinite (k_t*g^2 has overflowed, and the
                  coordinate receives no further update) or NaN
    update_rms    root mean square of s_t*m/(v^p + eps_t): the step in units of lr

    >>> from adaxopt import AdaXW
    >>> p = torch.nn.Parameter(torch.ones(4))
    >>> o = AdaXW([p]); p.grad = torch.full((4,), 2.0); o.step()
    >>> s = o.stats()[0]
    >>> s["step"], s["gain"], s["v_q50"], round(s["update_rms"], 6)
    (1.0, 1.0, 4.0, 0.1)
    """
    return [_group(optimizer, group) for group in optimizer.param_groups]


def _group(optimizer: Engine, group: dict[str, Any]) -> dict[str, float]:
    entries = [optimizer.state[p] for p in group["params"] if optimizer.state.get(p) and p.numel()]
    if not entries:
        return {"step": 0.0}
    result = {"step": max(float(e["step"]) for e in entries)}
    method, group = optimizer.method, floats(group)
    if method.rule.memory is Growing and group["memory"] in (None, Growing.kind):
        result["b2_steps"] = group["betas"][1] * result["step"]
    total, count, inactive, lost = 0.0, 0, 0, 0
    samples: list[Tensor] = []
    elements = sum(real(e["exp_avg_sq"]).numel() for e in entries if "exp_avg_sq" in e)
    stride = max(1, elements // SAMPLE)
    gain = None
    for entry in entries:
        m, v, v_max = (_moment(entry, name) for name in codes.CODED)
        if "row_step" in entry and v is not None:
            n = method.numbers(_of_rows(entry["row_step"], v), group, torch)
        else:
            n = method.numbers(max(float(entry["step"]), 1.0), group)
        if v is not None:
            least = float(n.k.min()) if isinstance(n.k, Tensor) else n.k
            gain = least if gain is None else min(gain, least)
            inactive += int((v == 0).sum())
            finite = v.isfinite()
            if v_max is not None:
                finite &= v_max.isfinite()
            lost += v.numel() - int(finite.sum())
            samples.append(v.flatten()[::stride].double())
        if m is not None:
            v_max = v if v_max is None else v_max
            d = denominator(v_max.double(), n, torch) if v_max is not None else 1.0
            update = m.double() / d * n.s
            total += float((update**2).sum())
            count += m.numel()
    if gain is not None:
        gain = gain if gain > TINY["float32"] else 0.0  # steps use a gain of at least TINY
        result["gain"], result["horizon"] = gain, 1 / gain if gain else float("inf")
        values = torch.cat([s.to(samples[0].device) for s in samples])
        values = values[(values > 0) & values.isfinite()]
        asked = torch.tensor(QUANTILES, dtype=values.dtype, device=values.device)
        found = torch.quantile(values, asked).tolist() if len(values) else [0.0] * len(QUANTILES)
        for q, value in zip(QUANTILES, found, strict=True):
            result[f"v_q{round(q * 100):02d}"] = value
        result["inactive"], result["lost"] = (n / max(elements, 1) for n in (inactive, lost))
    if count:
        result["update_rms"] = (total / count) ** 0.5
    return result


def _of_rows(steps: Tensor, v: Tensor) -> Tensor:
    """The step count of each row, at least 1, with the dimensions of v."""
    return steps.clamp(min=1.0).reshape(steps.shape + (1,) * (v.dim() - steps.dim()))


def _moment(entry: dict[str, Any], name: str) -> Tensor | None:
    return real(expanded(entry, name)) if name in entry else None
