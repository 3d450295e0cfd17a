"""Measures: the number that is taken from a run to judge a claim, and how it is shown.

`of` returns a number for a run record, or None for a diverged run. Fractions of 1 are shown in percent. The other
fields are texts: `rules` has the sentence of each rule by which the measure is judged, the rest are number formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adaxlab import stats
from adaxlab.claim import LEAST

if TYPE_CHECKING:
    from adaxlab.store import RunRecord

FLOORS = {"cifar10": 15.0, "imagenet": 2.0}
"""A run whose final accuracy in percent is at most this value counts as failed: it is little better than chance."""

Of = Callable[["RunRecord"], float | None]
Shared = Callable[["RunRecord"], Hashable | None]


@dataclass(frozen=True)
class Measure:
    of: Of
    rules: Mapping[str, str]
    """The sentence of a rule; `{margin}` is replaced by the claim's margin."""
    higher_is_better: bool = True
    level: str = ".2f"
    """The format of a value."""
    ratio: str = ".3g"
    """The format of a ratio."""
    head: str = "{a} - {b} = "
    """Text before a comparison; may also contain {rows}."""
    tail: str = ""
    """Text after the interval."""
    beside: Callable[[float, float], str] | None = None
    """Text after the interval, computed from the two means, if the claim has no other measure."""
    few: str = f"; fewer than {LEAST} seeds decide nothing"
    lost_decide: int | None = None
    """With fewer than 3 pairs: the number of runs of `a` without a value that decides against the claim (None: no
    number does)."""
    shared: Shared | None = None
    """A key of runs that share one value, which counts once."""


def percent(share: float) -> float:
    """A fraction in percent, without floating-point artefacts.

    >>> 100 * 0.57, percent(0.57)
    (56.99999999999999, 57.0)
    """
    return round(100 * share, 6)


def ended(of: Callable[[RunRecord], float]) -> Of:
    """The measure of a run that finished; None for a diverged run."""
    return lambda run: None if failed(run) else of(run)


def failed(run: RunRecord) -> bool:
    """Whether a run diverged, or ended with an accuracy little better than chance."""
    floor = FLOORS.get(run.spec["study"].partition("/")[0], -math.inf)
    return run.status != "finished" or percent(final(run)) <= floor


def final(run: RunRecord) -> float:
    """The metric of the last evaluation."""
    assert run.done is not None
    return run.done["metric"]


def final_percent(run: RunRecord) -> float:
    return percent(final(run))


def trained(first: int, last: int | float) -> Callable[[RunRecord], float]:
    """The training metric in percent, averaged over the epochs first..last; a `last` below 1 is a share of the run."""

    def of(run: RunRecord) -> float:
        until = max(1, math.floor(last * run.spec["epochs"])) if last < 1 else int(last)
        part = [line["train_metric"] for line in run.metrics[first - 1 : until]]
        return stats.mean([percent(value) for value in part])

    return of


def tested(first: int, last: int) -> Callable[[RunRecord], float]:
    """The test metric in percent, averaged over the evaluations first..last."""
    return lambda run: stats.mean([percent(line["metric"]) for line in run.metrics[first - 1 : last]])


def trained_last(run: RunRecord) -> float:
    return percent(run.metrics[-1]["train_metric"])


def late_gain(share: float) -> Callable[[RunRecord], float]:
    """The final metric minus its value after a fraction of the epochs, in percent."""

    def of(run: RunRecord) -> float:
        before = run.metrics[max(1, round(share * run.spec["epochs"])) - 1]["metric"]
        return percent(run.metrics[-1]["metric"]) - percent(before)

    return of


def early_loss(run: RunRecord) -> float:
    """The training loss, averaged over the first three quarters of the evaluations."""
    return stats.mean([line["train_loss"] for line in run.metrics[: 3 * len(run.metrics) // 4]])


def train_loss(index: int) -> Callable[[RunRecord], float]:
    return lambda run: run.metrics[index]["train_loss"]


def trace_at(iteration: int) -> Of:
    """The mean of sqrt(v-hat) at the recorded iteration nearest to the one asked for; -1 is the last."""

    def of(run: RunRecord) -> float | None:
        assert run.done is not None
        trace = run.done.get("trace")
        if not trace:
            return None
        steps, values = trace["iteration"], trace["value"]
        if iteration < 0:
            return values[-1]
        return values[min(range(len(steps)), key=lambda i: abs(steps[i] - iteration))]

    return of


def epoch_seconds(run: RunRecord) -> float:
    """Seconds per epoch: the median without the first epoch, or, if a record has no such value, the mean with it."""
    assert run.done is not None
    return run.done.get("epoch_seconds") or run.done["seconds"] / run.spec["epochs"]


def stack(run: RunRecord) -> Hashable | None:
    """The stack in which the run was trained; None if it was trained alone."""
    assert run.done is not None
    together = run.done.get("together", 1)
    return (together, run.done["seconds"]) if together > 1 else None


def step_ms(run: RunRecord) -> float:
    """Milliseconds of a step in one round of a speed record."""
    assert run.done is not None
    return run.done["step_ms"]


def lr(run: RunRecord) -> float:
    return run.spec["options"]["lr"]


def perplexities(a: float, b: float) -> str:
    return f" (perplexities {math.exp(a):.1f} and {math.exp(b):.1f})"


def _about(what: str, rules: Mapping[str, str]) -> dict[str, str]:
    """The sentences of the rules with the measure's name in them."""
    return {rule: text.replace("WHAT", what) for rule, text in rules.items()}


PLAIN = {
    "better": "a - bWHAT is above {margin:g}",
    "not_worse": "a - bWHAT is above -{margin:g}",
    "similar": "a - bWHAT is within +-{margin:g}",
    "below": "aWHAT is below {margin:g}",
    "ratio": "a/bWHAT is within 1 +- {margin:g}",
    "equals_paper": "supported if our plain 95% interval meets the paper's mean +- margin, contradicted if it does not "
    "and the adjusted p is below 0.05, else inconclusive",
}
TRACE = {
    "below": "the trace (mean of sqrt(v-hat)) at iteration 1000 is below {margin:g}",
    "larger": "the traces' ratio a/b (means of sqrt(v-hat)) is above 1, at iteration 1000 and at the last",
}
ROUNDS: dict[str, Any] = dict(head="mean {a} ms / {b} ms; a/b of a round ", ratio=".3f", tail=", rounds")
BETTER_BY = "{a} and {b}; better by "


def _nats(name: str, words: str, of: Callable[[RunRecord], float], **more: Any) -> Measure:
    """A loss in nats per word, to five decimals, as in the tables of the study."""
    rules = {"better": f"{words}, is above {{margin:g}}", "not_worse": f"{words}, is above -{{margin:g}}"}
    return Measure(ended(lambda run: round(of(run), 5)), rules, level=".4f", head=f"{name} ", **more)


MEASURES: dict[str, Measure] = {
    # CIFAR-10
    "accuracy": Measure(ended(final_percent), _about("", PLAIN), lost_decide=1),
    "early accuracy": Measure(
        ended(trained(1, 99)),
        _about(", training accuracy averaged over epochs 1 to 99,", PLAIN),
        lost_decide=1,
    ),
    "early test accuracy": Measure(
        ended(tested(1, 99)), _about(", test accuracy averaged over epochs 1 to 99,", PLAIN), lost_decide=1
    ),
    "trace": Measure(trace_at(1000), TRACE, level=".2e", head="iteration 1000: {rows} = "),
    "last trace": Measure(trace_at(-1), TRACE, level=".2e", head="the last: {rows} = "),
    "epoch seconds": Measure(
        epoch_seconds,
        _about(", seconds,", PLAIN),
        head="seconds: {rows} = ",
        few="",
        shared=stack,
    ),
    # ImageNet
    "top-1": Measure(ended(final_percent), _about(", top-1 after the last epoch,", PLAIN), lost_decide=3),
    "last training": Measure(
        ended(trained_last), _about(", training accuracy of the last epoch,", PLAIN), lost_decide=3
    ),
    "early training": Measure(
        ended(trained(1, 0.3)),
        _about(", training accuracy averaged over the first 30% of the epochs,", PLAIN),
        lost_decide=3,
    ),
    "late gain": Measure(
        ended(late_gain(0.7)),
        _about(", top-1 after the last epoch less that when 70% of the epochs are over,", PLAIN),
        level="+.2f",
        lost_decide=3,
    ),
    "training step": Measure(step_ms, _about(", time of a training step, rounds in turn,", PLAIN), **ROUNDS),
    # segmentation
    "IoU": Measure(ended(final_percent), _about(", final IoU,", PLAIN), head=BETTER_BY),
    "IoU throughout": Measure(
        ended(tested(1, 4)), _about(", IoU averaged over the four evaluations,", PLAIN), head=BETTER_BY
    ),
    "early loss": Measure(
        ended(early_loss),
        {"better": "b - a, training loss averaged over three quarters, is above {margin:g}"},
        higher_is_better=False,
        level=".3f",
        head=BETTER_BY,
    ),
    "step": Measure(
        step_ms,
        _about(", time of a step, rounds in turn,", PLAIN),
        **ROUNDS,
    ),
    "tuned lr": Measure(
        lr,
        {"paper_ratio": "a's tuned lr over b's is within a factor of {margin:g} of the paper's"},
    ),
    # language
    "test loss": _nats("test", "b - a, test loss", final, higher_is_better=False, beside=perplexities),
    "last loss": _nats(
        "trained", "b - a, training loss of the last epoch", train_loss(-1), higher_is_better=False
    ),
    "loss per byte": Measure(
        ended(final),
        {
            rule: text.replace("a - b", "b - a")
            for rule, text in _about(", test loss per byte,", PLAIN).items()
        },
        higher_is_better=False,
        level=".4f",
        head=BETTER_BY,
        lost_decide=1,
    ),
    "slow start": _nats("early", "a - b, training loss of the first epoch", train_loss(0)),
}
"""The measures by the names that claims use."""
