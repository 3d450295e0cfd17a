"""Tuning with equal budgets: every optimizer may try the same number of settings.

`walk` tunes only the learning rate, on a log grid that starts near the documented default and adapts to the scores.
`sampled` tunes several settings with a sampler of optuna. Both are functions of the scores they receive, so a study
that was killed is replayed from the scores of its finished runs and continues with the same trials.

A fixed grid favours methods whose default happens to suit the task. The grid is therefore searched step by step: first
a decade to either side of the best so far, until it is bracketed; then half a decade, a quarter, an eighth; a remaining
budget widens the search again. SGDM can move from torch's 1e-3 to 0.1 with the same budget with which AdamW refines
around its default. As long as every run diverges, the search goes down by decades.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Generator, Iterable, Mapping
from typing import Any

from adaxlab.errors import LabError, check_known
from adaxopt.extras import need

SAMPLERS = ("qmc", "random", "tpe")
"""Quasi-random (scrambled Sobol points), uniformly random, and optuna's Bayesian search."""
Point = dict[str, float]
Score = tuple[float, float]
WORST: Score = (-math.inf, -math.inf)


def walk(first: float, trials: int) -> Generator[float, Score, float]:
    """Yield the learning rates to try, one by one; receive the score of each (higher is better); return the best.

    >>> search = walk(1e-3, 5)
    >>> lr, tried = next(search), []
    >>> try:
    ...     while True:
    ...         tried.append(lr)
    ...         lr = search.send((-abs(math.log10(lr / 0.04)), 0.0))     # the best is near 0.04
    ... except StopIteration as end:
    ...     tried, end.value
    ([0.001, 0.01, 0.1, 1.0, 0.0316], 0.0316)
    """
    scores: dict[float, Score] = {}
    place = 0.0
    for _ in range(trials):
        scores[place] = yield value(first, place)
        place = _next(scores)
    return value(first, _best(scores))


def start(lr: float) -> float:
    """Where the search begins for an optimizer with this default: at the power of ten at or below it. All optimizers
    then try rates of one grid, so that a difference between them is not one between grids.

    >>> start(5e-3), start(1e-3), start(0.02), start(1.0)
    (0.001, 0.001, 0.01, 1.0)
    """
    return float(f"1e{math.floor(math.log10(lr) + 1e-9)}")


def value(first: float, place: float) -> float:
    """The learning rate `place` decades from the first, to three digits."""
    return float(f"{first * 10**place:.3g}") if place else first


def _best(scores: Mapping[float, Score]) -> float:
    return max(scores, key=lambda place: scores[place])


def _next(scores: Mapping[float, Score]) -> float:
    best = _best(scores)
    if scores[best] == WORST:
        return min(scores) - 1
    # the side whose nearest tried neighbour is better comes first; up before down when neither is known
    sides = sorted((1, -1), key=lambda side: _neighbour(scores, best, side), reverse=True)
    close = (1.0, 0.5, 0.25, 0.125)  # an eighth of a decade is a third more: finer than one seed can tell
    beyond = (j / 4 for j in itertools.count(3))
    for distance in itertools.chain(close, beyond):
        for side in sides:
            if best + side * distance not in scores:
                return best + side * distance
    raise AssertionError("the grid has no end")


def _neighbour(scores: Mapping[float, Score], best: float, side: int) -> Score:
    beyond = [place for place in scores if (place - best) * side > 0]
    return scores[min(beyond, key=lambda place: abs(place - best))] if beyond else WORST


def score(done: Iterable[Mapping[str, Any]]) -> Score:
    """The score of a trial: the mean validation metric, then (for ties) the validation loss, if it was measured. A
    diverged trial has the lowest score."""
    ends = list(done)
    if any(end["status"] != "finished" for end in ends):
        return WORST
    sign = 1 if ends[0]["higher_is_better"] else -1
    n = len(ends)
    losses = (e.get("valid_loss") or 0.0 for e in ends)
    return sign * math.fsum(e["metric"] for e in ends) / n, -math.fsum(losses) / n


def best(rates: Iterable[float], scores: Iterable[Score]) -> float:
    """The learning rate with the highest score; the first one of equal scores.

    >>> best([1e-3, 1e-2], [(0.8, 0.0), (0.9, 0.0)])
    0.01
    """
    return max(zip(rates, scores, strict=True), key=lambda pair: pair[1])[0]


def sampled(
    ranges: Mapping[str, tuple[float, float, bool]],
    first: Point,
    trials: int,
    seed: int,
    sampler: str = "qmc",
) -> Generator[list[Point], list[Score], None]:
    """Yield the points to try and receive their scores: all at once, or one by one if the sampler uses the scores.

    `ranges` are (low, high, logarithmic). The first point is `first`, the optimizer's own settings. The points depend
    only on the arguments and the scores. Every optimizer gets the same points, scaled to its own ranges.
    """
    check_known("sampler", SAMPLERS, sampler)
    optuna = _optuna()
    space = {
        name: optuna.distributions.FloatDistribution(low, high, log=log)
        for name, (low, high, log) in ranges.items()
    }
    study = optuna.create_study(direction="maximize", sampler=_sampler(optuna, sampler, seed))
    study.enqueue_trial(first)
    if sampler == "tpe":
        for _ in range(trials):
            trial = study.ask(space)
            (score,) = yield [dict(trial.params)]
            study.tell(trial, score[0])
        return
    asked = [study.ask(space)]
    study.tell(asked[0], 0.0)  # a quasi-random sampler takes its dimensions from a trial that has ended
    asked += [study.ask(space) for _ in range(trials - 1)]
    yield [dict(trial.params) for trial in asked]


def _optuna() -> Any:
    try:
        need("tuning over more than lr", "adaxopt[tune]", optuna="4.0", scipy="1.11")
    except ImportError as error:
        raise LabError(str(error)) from error
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _sampler(optuna: Any, name: str, seed: int) -> Any:
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name == "tpe":
        return optuna.samplers.TPESampler(seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.QMCSampler(seed=seed, scramble=True)
