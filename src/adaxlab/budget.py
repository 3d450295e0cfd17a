"""`--budget 2h`: how many trials and seeds fit into a time, decided once, before the first run.

A few steps of every optimizer are timed. If the requested study does not fit, trials are reduced first, down to four,
then seeds, down to three, then trials again, down to two (four and two for each tuned setting). The plan is stored in
study.json, and the same command uses it again. It is an estimate: no run is stopped when the time is over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from adaxlab import estimate, study_file
from adaxlab.errors import LabError
from adaxlab.messages import duration, say
from adaxlab.settings import Settings
from adaxlab.study import Study

UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
FLOORS = (("trials", 4), ("seeds", 3), ("trials", 2))
"""The quantities that are cut, in this order, and their lower limits."""


def seconds(text: str) -> float:
    """The time in a text, in seconds.

    >>> seconds("2h"), seconds("1h30m"), seconds("90s"), seconds("0.5d")
    (7200.0, 5400.0, 90.0, 43200.0)
    """
    found = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[smhd])", text.lower())
    if not found or re.sub(r"\s", "", text.lower()) != "".join(n + unit for n, unit in found):
        raise LabError(f"--budget {text}: must be a time such as 2h, 90m or 1h30m")
    total = math.fsum(float(n) * UNITS[unit] for n, unit in found)
    if not total > 0:
        raise LabError(f"--budget {text}: must be > 0")
    return total


def fit(
    trials: int, seeds: int, fits: Callable[[int, int], bool], settings: int = 1
) -> tuple[int, int] | None:
    """The largest numbers of trials and seeds that fit, in the order of `FLOORS`; None if the smallest do not. `trials`
    is 0 for a study without tuning; `settings` is the number of tuned settings.

    >>> fit(8, 5, lambda trials, seeds: trials + seeds <= 10), fit(8, 5, lambda trials, seeds: trials + seeds <= 7)
    ((5, 5), (4, 3))
    """
    return next(((t, s) for t, s in _plans(trials, seeds, settings) if fits(t, s)), None)


def _plans(trials: int, seeds: int, settings: int) -> Iterator[tuple[int, int]]:
    plan = {"trials": trials, "seeds": seeds}
    yield trials, seeds
    for what, least in FLOORS:
        while plan[what] > least * (settings if what == "trials" else 1):
            plan[what] -= 1
            yield plan["trials"], plan["seeds"]


def settle(
    study: Study, text: str, root: Path | str, settings: Settings, jobs: int, share: float = 1.0
) -> Study:
    """The study with as many trials and seeds as fit into its share of the time; if study.json has a plan for this
    budget, with the trials and seeds of that plan."""
    wanted = share * seconds(text)
    asked = replace(study, budget={"asked": text}).complete()  # its name does not depend on what is measured
    path = study_file.place(root, asked)
    if path.exists():
        before, _ = study_file.read(path)
        if before.budget.get("asked") == text:
            say(f"budget: as planned before the first run, {_words(before)}")
            tuning = asked.tuning and before.tuning and replace(asked.tuning, trials=before.tuning.trials)
            more = asked.seeds > before.budget["seeds"]  # than were asked for when it was planned
            seeds = asked.seeds if more else before.seeds
            return replace(asked, seeds=seeds, tuning=tuning, budget=before.budget)
    times = [
        estimate.measure(replace(asked, rows=(row,), baseline=row.name), root, settings).seconds
        for row in asked.rows
    ]
    if any(time is None for time in times):
        raise LabError(
            f"--budget {text}: the time of a run could not be measured; leave --budget out and see why"
        )
    round_ = math.fsum(time for time in times if time) / max(1, jobs)  # one run of each optimizer
    trials = asked.tuning.trials if asked.tuning else 0
    each = asked.tuning.seeds if asked.tuning else 1
    knobs = len(asked.tuning.over) if asked.tuning else 1
    found = fit(trials, asked.seeds, lambda t, s: (t * each + s) * round_ <= wanted, knobs)
    if found is None:
        least = list(_plans(trials, asked.seeds, knobs))[-1]
        need = duration((least[0] * each + least[1]) * round_)
        raise LabError(
            f"--budget {text}: {least[0]} trials and {least[1]} seeds of {len(asked.rows)} optimizers take about "
            f"{need}; give more time, more --jobs, fewer --optimizers or --epochs"
        )
    tuning = replace(asked.tuning, trials=found[0]) if asked.tuning else None
    plan = {
        "asked": text,
        "jobs": jobs,
        "seconds_of_a_round": round(round_, 3),
        "trials": trials,
        "seeds": asked.seeds,
    }
    settled = replace(asked, seeds=found[1], tuning=tuning, budget=plan)
    cut = _cut(plan, settled)
    settled = replace(settled, budget={**plan, "cut": cut})
    say(f"budget: {_words(settled)}, about {duration((found[0] * each + found[1]) * round_)}; {cut}")
    return settled


def _words(study: Study) -> str:
    trials = f"{study.tuning.trials} trials and " if study.tuning else ""
    return f"{trials}{study.seeds} seeds of each optimizer"


def _cut(plan: dict[str, object], settled: Study) -> str:
    """The cuts, as text."""
    now = {"trials": settled.tuning.trials if settled.tuning else 0, "seeds": settled.seeds}
    said = [f"{what} cut from {plan[what]} to {n}" for what, n in now.items() if n != plan[what]]
    return ", ".join(said) or "nothing was cut"
