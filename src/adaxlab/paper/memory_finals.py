"""The tasks of the memory study, and its final runs, whose settings the screens have chosen.

FINALS has the settings; a test compares them with what the rule (`memory_rule.py`) makes of the committed records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from adaxlab.claim import VERDICTS, Claim
from adaxlab.paper.memory import (
    CIFAR_EPOCHS,
    CIFAR_SCREEN,
    GPT_EPOCHS,
    GPT_SCREEN,
    TOLERANCE,
    TRANSFORMER,
    rows,
)
from adaxlab.paper.memory_rule import KEPT, Final
from adaxlab.study import Row, Study
from adaxlab.tasks.cifar10 import STEPS


class StudyTask(NamedTuple):
    """A task of the study: its screen, its final runs, and the unit of its tables."""

    title: str
    screen: Study
    steps: int
    """Steps of a final run."""
    seeds: int
    task_options: Mapping[str, Any]
    """Of the final runs, which train on all training data."""
    measure: str
    unit: str
    scale: float
    digits: int

    @property
    def tolerance(self) -> float:
        """In the unit of the tables."""
        return self.scale * TOLERANCE[self.screen.name]

    @property
    def quantity(self) -> str:
        """What a result is, where it is not a difference."""
        return "accuracy in %" if self.unit == "points" else self.unit

    @property
    def limit(self) -> str:
        """The tolerance with its unit: '1 point'."""
        return f"{self.tolerance:g} {self.unit.removesuffix('s' * (self.tolerance == 1))}"

    @property
    def best(self) -> str:
        """The name of the study with each memory at its best lr."""
        return self.screen.name.replace("screen", "best")

    @property
    def wide(self) -> str:
        """The name of the study with each memory at the lr above Fading .95's range."""
        return self.screen.name.replace("screen", "wide")


GPT = StudyTask(
    "Transformer, bytes of enwik8", GPT_SCREEN, TRANSFORMER["steps"] * GPT_EPOCHS, 5, GPT_SCREEN.task_options,
    "loss per byte", "nats per byte", 1, 4,
)  # fmt: skip
CIFAR = StudyTask(
    "CIFAR-10, ResNet-20", CIFAR_SCREEN, STEPS * CIFAR_EPOCHS, 8,
    {key: value for key, value in CIFAR_SCREEN.task_options.items() if key != "holdout"},
    "accuracy", "points", 100, 2,
)  # fmt: skip
TASKS = (GPT, CIFAR)
FINALS: dict[str, Final] = {
    "gpt-memory-screen": Final(
        {
            "fading 0.95": 0.0024,
            "fading 0.999": 0.0024,
            "growing b2T=3": 0.0024,
            "polynomial 0.8": 0.0024,
            "log-time 2": 0.0024,
            "fading 0.99": 0.0024,
        },
        0.0096,
        ("fading 0.999", "growing b2T=3", "polynomial 0.8", "log-time 2", "fading 0.99"),
    ),
    "cifar10/memory-screen": Final(
        {
            "fading 0.95": 0.001,
            "fading 0.999": 0.016,
            "growing b2T=3": 0.016,
            "polynomial 0.8": 0.004,
            "log-time 2": 0.002,
            "fading 0.99": 0.002,
        },
        0.032,
        ("fading 0.999", "growing b2T=3", "polynomial 0.8", "log-time 2", "fading 0.99"),
    ),
}
"""The settings of the final runs, by the name of the screen."""
FIRST_SEED = 300
RULE = "Part of the memory study; its rule was amended before any results were seen (`memory.py`)."


def studies(task: StudyTask, final: Final) -> tuple[Study, ...]:
    """The screen of a task and its final runs: each memory at its best lr, and each at the lr above the range of
    Fading .95."""
    known = {row.name: row for row in rows(task.steps, ())}
    first, subject = KEPT[0], task.title.partition(",")[0]

    def at(memory: str, lr: float, name: str = "") -> Row:
        return replace(known[memory], name=name or memory, options={**known[memory].options, "lr": lr})

    best = replace(
        task.screen,
        name=task.best,
        rows=tuple(at(memory, lr) for memory, lr in final.rates.items()),
        baseline=first,
        tuning=None,
        seeds=task.seeds,
        first_seed=FIRST_SEED,
        task_options=task.task_options,
        asks="six memories, each at its best lr",
        title=f"{subject}: is another memory better than AdamW's with b2 = 0.95?",
        note=f"Each memory is at the learning rate that `{task.screen.name}` chose. {RULE}",
        figures=(),
    )
    wide = replace(
        best,
        name=task.wide,
        rows=(
            at(first, final.rates[first]),
            *(at(memory, final.above, large(memory, final)) for memory in final.rates),
        ),
        asks="six memories at a larger lr",
        title=f"{subject}: does another memory train well at a learning rate too large for AdamW with b2 = 0.95?",
        note=f"Each memory is at lr {final.above:g}, the smallest above the range of {first} in "
        f"`{task.screen.name}`; {first} is also at its best lr. {RULE}",
    )
    return task.screen, best, wide


def claims(task: StudyTask, final: Final) -> tuple[Claim, ...]:
    """The claims of the final runs: a memory is better at its best lr, good enough at the larger one and, post hoc,
    better than Fading .95 there."""
    first, where = KEPT[0], f"Beyond the paper: the memory study, {task.title}"
    better = (
        Claim(
            claim_id(task, "best", memory), f"{memory} is better than {first}, each at its best lr",
            where, task.best, "better", task.measure, memory, first, ours=True,
        )
        for memory in final.rates if memory != first
    )  # fmt: skip
    wider = (
        Claim(
            claim_id(task, "wide", memory),
            f"{memory} at lr {final.above:g} is at most {task.limit} worse than {first} at its best lr",
            where, task.wide, "not_worse", task.measure, large(memory, final), first,
            margin=task.tolerance, ours=True,
            note="the control: unless it is contradicted, no memory counts as wider" if memory == first else "",
        )
        for memory in final.rates
    )  # fmt: skip
    same = (
        Claim(
            claim_id(task, "same", memory), f"{memory} is better than {first}, both at lr {final.above:g}",
            where, task.wide, "better", task.measure, large(memory, final), large(first, final),
            ours=True, post_hoc=True, note="added after the final runs; not part of the rule",
        )
        for memory in final.rates if memory != first
    )  # fmt: skip
    return (*better, *wider, *same)


class Decision(NamedTuple):
    """What the final runs decide."""

    options: list[str]
    """The memories that become options of the library: wider, and not worse at their best, on every task."""
    good: dict[str, list[str]]
    """For each task, by its screen, the memories that meet the rule apart from the control."""
    undecided: list[StudyTask]
    """The tasks on which no memory can be wider, because the final runs do not show that Fading .95 is outside the
    tolerance at the lr above its range."""


def decide(judged: Mapping[str, Mapping[str, Any]], finals: Mapping[str, Final]) -> Decision:
    """The rule, applied to the rows of claims by id.

    A memory that diverged at every rate of a task has no claims there, and does not become an option.
    """
    first, every = KEPT[0], [finals[task.screen.name] for task in TASKS]
    memories = [n for n in every[0].rates if n != first and all(n in final.rates for final in every)]

    def row(task: StudyTask, kind: str, memory: str) -> Mapping[str, Any]:
        return judged[claim_id(task, kind, memory)]

    def good(task: StudyTask, memory: str) -> bool:
        within = row(task, "wide", memory)["verdict"] == VERDICTS[True]
        covers = memory in finals[task.screen.name].covers
        return within and covers and not worse(row(task, "best", memory))

    met = {task.screen.name: [name for name in memories if good(task, name)] for task in TASKS}
    undecided = [task for task in TASKS if row(task, "wide", first)["verdict"] != VERDICTS[False]]
    earned = [name for name in memories if all(name in names for names in met.values())]
    return Decision([] if undecided else earned, met, undecided)


def worse(row: Mapping[str, Any]) -> bool:
    """Whether a memory counts as worse at its best: by the plain interval, or because a run diverged."""
    return row["verdict"] == VERDICTS[False] or (row.get("estimate") or {"high": 0})["high"] < 0


def claim_id(task: StudyTask, kind: str, memory: str) -> str:
    """
    >>> claim_id(CIFAR, "wide", "growing b2T=3, floor 10/T")
    'cifar10.memory-wide.growing-b2T3-floor-10-T'
    """
    family = task.screen.task
    name = memory.replace(", ", "-").replace("=", "").replace(" ", "-").replace("/", "-")
    return f"{family}.memory-{kind}.{name}"


def large(memory: str, final: Final) -> str:
    """The row of a memory at the lr above the range."""
    return f"{memory}, lr {final.above:g}"


GPT_STUDIES, CIFAR_STUDIES = (studies(task, FINALS[task.screen.name]) for task in TASKS)
GPT_CLAIMS, _CIFAR_CLAIMS = (claims(task, FINALS[task.screen.name]) for task in TASKS)


# -- a check of the rate that all differences on CIFAR-10 rest on ------------------------------------------------------


def _at(memory: str, lr: float) -> Row:
    row = CIFAR_STUDIES[1].row(memory)
    return replace(row, name=f"{memory}, lr {lr:g}", options={**row.options, "lr": lr})


CIFAR_RATES_STUDY = replace(
    CIFAR_STUDIES[1],
    name="cifar10/memory-rates",
    rows=(*(_at("fading 0.95", lr) for lr in (1e-3, 2e-3, 4e-3)), _at("log-time 2", 2e-3)),
    baseline="fading 0.95, lr 0.001",
    seeds=14,
    first_seed=320,
    asks="the lr of fading 0.95 on new seeds",
    title="CIFAR-10: was the learning rate of fading 0.95 in the memory study a chance result?",
    note="In the screen fading 0.95 is the best of 16 memories at 0.001, and below the median of the others from 0.002 "
    "on. Written after the final runs of the memory study and before its own runs. n = 14: a difference of 0.3 points "
    "in 8 of 10 repetitions, at Holm's strictest level of three claims and a paired standard deviation of 0.3.",
)
_AT_1, _AT_2, _AT_4, _OTHER = (row.name for row in CIFAR_RATES_STUDY.rows)
CIFAR_CLAIMS = (
    *_CIFAR_CLAIMS,
    *(
        Claim(
            f"cifar10.memory-rates.{id}", text, "Beyond the paper: the memory study, CIFAR-10, ResNet-20",
            CIFAR_RATES_STUDY.name, "better", CIFAR.measure, a, b, ours=True,
        )
        for id, text, a, b in (
            ("0.002", "fading 0.95 is better at lr 0.002 than at 0.001", _AT_2, _AT_1),
            ("0.004", "fading 0.95 is better at lr 0.004 than at 0.001", _AT_4, _AT_1),
            ("log-time-2", "log-time 2 is better than fading 0.95, both at lr 0.002", _OTHER, _AT_2),
        )
    ),
)  # fmt: skip
