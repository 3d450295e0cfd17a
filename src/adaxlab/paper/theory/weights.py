"""The weight of each past squared gradient in v at step t, per method.

With v <- v + k (g^2 - v), the square of step i has the weight k_i (1-k_{i+1}) ... (1-k_t) at step t. The gains are
those of the rule. AMSGrad keeps the largest v so far: its weights are those of the step of that maximum, and depend on
the gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adaxlab.paper.theory.problems import Array
from adaxlab.paper.theory.simulate import Setting


def weights(setting: Setting, steps: int) -> Array:
    """Return the weights at step `steps`, oldest first; their sum is 1 if the method normalises them.

    >>> weights(Setting("adagrad", "adagrad"), 4)
    array([0.25, 0.25, 0.25, 0.25])
    """
    k = np.broadcast_to(setting.numbers(np.arange(1.0, steps + 1)).k, steps)
    with np.errstate(divide="ignore"):
        kept = np.log1p(-k)
    later = np.concatenate([np.cumsum(kept[:0:-1])[::-1], [0.0]])
    w = k * np.exp(later)
    lag = setting.lag
    return np.concatenate([w[lag:], np.zeros(lag)]) if lag else w


def summary(setting: Setting, steps: int, bins: int = 142) -> dict[str, Any]:
    """Return the fraction of the memory per bin of time, and the step at which the cumulative weight reaches half."""
    w = weights(setting, steps)
    share = w / w.sum()
    edges = np.linspace(0, steps, bins + 1).round().astype(int)
    cumulated = np.concatenate([[0.0], np.cumsum(share)])
    seen = cumulated[1:]
    return {
        "label": setting.label,
        "steps": steps,
        "sum": float(w.sum()),
        "edges": edges.tolist(),
        "share": np.diff(cumulated[edges]).tolist(),
        "half_seen_at": int(np.searchsorted(seen, 0.5)) + 1,
        "newest_tenth": float(1 - cumulated[round(0.9 * steps)]),
        "oldest_tenth": float(cumulated[round(0.1 * steps)]),
        "oldest_over_newest": float(share[0] / share[-1]) if share[-1] > 0 else None,
    }


def effective_count(setting: Setting, steps: int) -> float:
    """Return the effective sample size, (sum w)^2 / sum w^2."""
    w = weights(setting, steps)
    return float(w.sum() ** 2 / (w * w).sum())


def gains(setting: Setting, at: Array) -> list[float]:
    """Return k_t, the weight of the newest square."""
    return np.broadcast_to(setting.numbers(np.asarray(at, np.float64)).k, len(at)).tolist()


def facts(b2: float = 1e-4, steps: int = 2000) -> dict[str, float]:
    """Return the largest relative errors of three identities: k_t = k_{t-1}/(k_{t-1} + r_t); AdaX is NosAdam with
    weights (1+b2)^-i; the weights sum to 1."""
    t = np.arange(1.0, steps + 1)
    rows = {
        "adam": (Setting("adam", "adam"), np.full(steps, 0.999)),
        "adagrad": (Setting("adagrad", "adagrad"), np.ones(steps)),
        "adax": (Setting("adax", "adax", {"betas": (0.9, b2)}), np.full(steps, 1 + b2)),
        "nosadam": (Setting("nosadam", "nosadam"), (t / np.maximum(t - 1, 1)) ** 0.1),
    }
    ratio = 0.0
    for setting, r in rows.values():
        k = np.asarray(setting.numbers(t).k)
        ratio = max(ratio, float(np.max(np.abs(k[:-1] / (k[:-1] + r[1:]) / k[1:] - 1))))
    adax = rows["adax"][0]
    fading = (1 + b2) ** -t
    nos = np.abs(fading / np.cumsum(fading) / np.asarray(adax.numbers(t).k) - 1).max()
    total = max(abs(weights(s, steps).sum() - 1) for s, _ in rows.values())
    return {"ratio_recursion": ratio, "adax_is_nosadam": float(nos), "weights_sum": float(total)}


def table_1(steps: int = 300, seed: int = 0) -> dict[str, float]:
    """Compare Table 1's sums with the rule's v: return the largest relative difference per method. For NosAdam it is
    the factor by which the table's formula (with NosAdam's b2_t) exceeds NosAdam's v at the last step."""
    from adaxlab.paper.theory.simulate import updates

    g = np.random.default_rng(seed).normal(size=steps)
    t = np.arange(1, steps + 1)
    squares = g * g

    def sums(weight: Any) -> Array:
        return np.array([(weight(n) * squares[:n]).sum() for n in t])

    def rule(name: str, b2: float, **more: Any) -> Array:
        options = {"lr": 1.0, "eps": 0.0, "betas": (0.0, b2), **more}
        with np.errstate(all="ignore"):
            return updates(Setting(name, name, options), g).d ** 2

    def age(n: int) -> Array:
        return (n - t[:n]).astype(np.float64)

    lag = 10
    shifted = [
        (0.01 * 0.99 ** (n - lag - t[: n - lag]) * squares[: n - lag]).sum() / (1 - 0.99 ** (n - lag))
        for n in t[lag:]
    ]
    written = {
        "adagrad": (sums(lambda n: 1 / n), rule("adagrad", 0.0)),
        "rmsprop": (sums(lambda n: 0.01 * 0.99 ** age(n)), rule("rmsprop", 0.99)),
        "adam": (sums(lambda n: 0.01 / (1 - 0.99**n) * 0.99 ** age(n)), rule("adam", 0.99)),
        "amsgrad": (
            np.maximum.accumulate(sums(lambda n: 0.01 * 0.99 ** age(n))),
            rule("amsgrad", 0.99, correct=False),
        ),
        "adashift": (np.array(shifted), rule("adashift", 0.99)[lag:]),
        "adax": (sums(lambda n: 1e-3 * 1.001 ** age(n) / (1.001**n - 1)), rule("adax", 1e-3)),
    }
    out = {name: float(np.abs(a / b - 1).max()) for name, (a, b) in written.items()}
    harmonic = np.cumsum(t**-0.1)
    v = 0.0
    for i in range(steps):  # the table's recursion with NosAdam's b2_t = B_{t-1}/B_t
        b2_t = harmonic[i - 1] / harmonic[i] if i else 0.0
        v = (1 + b2_t) * v + (b2_t if i else 1.0) * squares[i]
    out["nosadam_log10_factor"] = float(np.log10(v / rule("nosadam", 0.1)[-1]))
    return out
