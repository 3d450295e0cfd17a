"""Study `theory`: memories, lemmas, regret, the rate, and arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from adaxlab.paper.theory import (
    claims_bounds,
    claims_memory,
    lemmas,
    precision,
    rate,
    regret,
    weights,
)
from adaxlab.paper.theory.errata import ERRATA
from adaxlab.paper.theory.record import Tick, no_progress, places, record
from adaxlab.paper.theory.simulate import Setting, updates

RUN = 71_000
"""Steps in the figure of memories: the length of the paper's CIFAR-10 runs."""


def memories(steps: int = RUN) -> dict[str, Any]:
    """Return weights and gains of the methods whose memory does not depend on the gradients."""
    settings = [
        Setting("rmsprop", "rmsprop"),
        Setting("adam", "adam"),
        Setting("adagrad", "adagrad"),
        Setting("nosadam", "nosadam"),
        Setting("adax", "adax"),
    ]
    at = places(steps, 90)
    rows = []
    for setting in settings:
        row = weights.summary(setting, steps)
        row["optimizer"] = row.pop("label")
        row |= {"gain": weights.gains(setting, at), "effective": weights.effective_count(setting, steps)}
        rows.append(row)
    return {"steps": steps, "at": at.tolist(), "rows": rows}


def stability(steps: int = RUN, seed: int = 0) -> dict[str, Any]:
    """Return how much v changes late in a run with stationary gradients, and how far it is below E g^2 if the gradients
    of the first 20,000 steps were a hundredth as large."""
    rng = np.random.default_rng(seed)
    quiet = rng.normal(size=steps)
    late = quiet * np.where(np.arange(steps) < 20_000, 0.01, 1.0)
    out: dict[str, Any] = {"steps": steps}
    for name in ("adam", "adax"):
        setting = Setting(name, name, {"eps": 0.0})
        v = updates(setting, quiet).d[-10_000:] ** 2
        out[name] = {
            "relative_sd": float(v.std() / v.mean()),
            "v_over_square_after_small_start": float(updates(setting, late).d[-1] ** 2),
        }
    return out


def study(
    steps: int = 10_000,
    rate_steps: int = 50_000,
    seeds: int = 32,
    full: bool = True,
    tick: Tick = no_progress,
) -> dict[str, Any]:
    tick("memories")
    body: dict[str, Any] = {"memories": memories(), "facts": weights.facts(), "table_1": weights.table_1()}
    body["stability"] = stability()
    tick("Lemma 4.1")
    body["lemma_41"] = {schedule: lemmas.lemma_41(schedule) for schedule in ("sqrt", "constant")}
    body["lemma_41_example"] = lemmas.lemma_41_example()
    body["lemma_41_bound"] = lemmas.lemma_41_bound(1e-4)
    body["lemma_71"] = [lemmas.lemma_71(b2) for b2 in (1e-4, 0.5, 0.999)]
    body["floor"] = lemmas.floor_of_v()
    body["unbiased"] = lemmas.unbiased()
    body["step_bound"] = lemmas.step_bound()
    tick("regret")
    body["regret"] = [
        regret.play(kind, variant, steps, b1=b1)
        for kind in regret.KINDS
        for variant in ("theorem", "algorithm")
        for b1 in (0.0, 0.9)
    ]
    body["lemma_73"] = regret.lemma_73_example()
    body["regret_large_b2"] = regret.play("linear", "theorem", steps, b2=0.999)
    for name in rate.METHODS_COMPARED:
        tick(f"rate: {name}, {seeds} seeds")
        body.setdefault("rate", []).append(rate.measure(name, rate_steps, seeds))
    tick("arithmetic")
    body["precision"] = precision.report(full)
    what = (
        "Table 1, weights of the memories, Lemmas 4.1 and 7.1 to 7.3, regret on 3 kinds of online convex problems, "
        f"the rate on a noisy non-convex function ({rate_steps:,} steps, {seeds} seeds), arithmetic"
    )
    return record(
        "theory", what, body, [*claims_memory.claims(body), *claims_bounds.claims(body)], errata=ERRATA
    )
