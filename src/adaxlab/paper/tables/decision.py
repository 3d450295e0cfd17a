"""AdaX against AdamW after equal tuning, task by task, from the records: the table of docs/should-i-use-adax.md, and
the first lines of README.md with their table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from adaxlab import markdown, records
from adaxlab.claim import ENOUGH, NOT_RUN, link
from adaxlab.paper import claims
from adaxlab.paper.gpt import GPT
from adaxlab.paper.tables import adamw, gpu_step
from adaxlab.paper.tables.exhibits import interval, unpaired
from adaxlab.report.numbers import listed
from adaxlab.stats import Estimate
from adaxlab.summary import summarise


class TaskClaim(NamedTuple):
    """A task of the table and the claim "AdaX is better than Adam(W), each at its best lr" that was judged on it."""

    task: str
    data: str
    stands_for: str
    """The paper's data set that `data` replaces; empty for the paper's own data."""
    claim: str
    unit: str = "points"
    baseline: str = "AdamW"
    caveat: str = ""
    """What limits the comparison, in a few words."""
    later: str = ""
    """A claim that replaces `claim`, without its caveat, once it has been judged."""

    @property
    def source(self) -> str:
        return (
            f"{self.data}, a stand-in for {self.stands_for}"
            if self.stands_for
            else f"{self.data}, the paper's data"
        )


def current(task: TaskClaim, judged: Mapping[str, Mapping[str, Any]]) -> TaskClaim:
    """The task with the claim that is shown now."""
    ran = judged.get(task.later, {"verdict": NOT_RUN})["verdict"] != NOT_RUN
    return task._replace(claim=task.later, caveat="") if ran else task


NEAR, FAR = "LSTM, b2·T = 3", "LSTM, the paper's b2·T of 35"
BILLION = "One Billion Word"
UNEVEN = "lr grids of different spacing"
EDGE = "at an edge of the grid"
WORDS = {"unit": "nats per word", "baseline": "Adam"}
TASKS = (
    TaskClaim("image classification, ResNet-20", "CIFAR-10", "", "cifar10.fresh-over-adamw"),
    TaskClaim(
        "image classification, ResNet-18",
        "Tiny-ImageNet",
        "ImageNet",
        "imagenet.tuned.adaxw-over-adamw",
    ),
    TaskClaim(
        "segmentation, ResNet-50 from ImageNet",
        "CamVid",
        "VOC2012",
        "voc.adaxw-over-adamw-eight",
        unit="points of IoU",
        caveat=f"best lr of both {EDGE}",
    ),
    TaskClaim(
        NEAR,
        "Penn Treebank",
        BILLION,
        "language.ptb.adax-over-adam.b2T3",
        **WORDS,
        caveat=UNEVEN,
        later="language.ptb.even.b2T3",
    ),
    TaskClaim(
        NEAR,
        "words of enwik8",
        BILLION,
        "language.enwik8.adax-over-adam.b2T3",
        **WORDS,
        caveat=f"AdaX's best lr {EDGE}",
    ),
    TaskClaim(
        FAR,
        "Penn Treebank",
        BILLION,
        "language.ptb.adax-over-adam",
        **WORDS,
        caveat=UNEVEN,
        later="language.ptb.even",
    ),
    TaskClaim(FAR, "words of enwik8", BILLION, "language.enwik8.adax-over-adam", **WORDS),
)
TRANSFORMER = "adaxw@b2T=3"
ADVICE = {
    "supported": "{adax}",
    "contradicted": "{adam}",
    "inconclusive": "either; keep {adam}",
    "not run": "not measured",
}


def section(root: Path) -> str:
    """One line per task: data, recommendation, evidence, n."""
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    lines = [_line(task, judged[task.claim]) for task in (current(each, judged) for each in TASKS)]
    if seen := _transformer(root):
        verdict, few = _judged(seen)
        cells = f"{seen.mean:+.4f} [{seen.low:+.4f}, {seen.high:+.4f}] nats per byte ([study](gpt.md))"
        advice = _advice(verdict, "AdamW", few)
        lines.append(
            ("transformer of 21M parameters, b2·T = 3", "enwik8; not in the paper", advice, cells, seen.n)
        )
    return markdown.table(("task", "data", "use", "AdaX is better by (95%)", "n"), lines)


def _line(task: TaskClaim, row: Mapping[str, Any]) -> tuple[object, ...]:
    advice = _advice(row["verdict"], task.baseline, row["provisional"])
    if row["verdict"] == NOT_RUN:
        return (task.task, task.source, advice, "", "")
    without = unpaired(row)
    text = f"{interval(row)} {task.unit}" + (f"; {without}" if without else "")
    text += f"; {task.caveat}" if task.caveat else ""
    return (task.task, task.source, advice, f"{text} ({link(task.claim, 'rule')})", row["n"])


def _advice(verdict: str, adam: str, provisional: bool) -> str:
    """What to use instead of `adam`, or not: AdaX-W is compared with AdamW, AdaX with Adam."""
    adax = "AdaX-W" if adam == "AdamW" else "AdaX"
    return ADVICE[verdict].format(adam=adam, adax=adax) + (", provisional" if provisional else "")


def _transformer(root: Path) -> Estimate | None:
    """The transformer's study has no claims of the paper: its own comparison with AdamW."""
    runs = records.load(root / "records", GPT.name)
    found = summarise(GPT, runs).row(TRANSFORMER).verdict if runs else None
    return found.difference if found else None


def _judged(seen: Estimate) -> tuple[str, bool]:
    """The verdict on an interval, and whether it is provisional."""
    verdict = "supported" if seen.low > 0 else "contradicted" if seen.high < 0 else "inconclusive"
    return verdict, verdict != "inconclusive" and seen.n < ENOUGH


# -- README.md -----------------------------------------------------------------------------------------------------


WHEN_NOT = (
    "- **When not to use AdaX**: when the scale or the distribution of gradients changes late in training, when you "
    "cannot clip gradients, or when the length of the run is unknown ([Should I use AdaX?](docs/should-i-use-adax.md))."
)
OUTCOMES = {
    "supported": "better",
    "contradicted": "worse",
    "inconclusive": "no significant difference",
}
COUNTED = {
    "supported": "significantly better",
    "contradicted": "worse",
    "inconclusive": "not significantly different",
}


def headline(root: Path) -> str:
    """AdaX against AdamW after equal tuning, when not to use it, speed; then the comparisons as a table."""
    found = _comparisons(root)
    return "\n".join((_tuned(found), WHEN_NOT, _speed(root), *_shown(found)))


class TaskResult(NamedTuple):
    """AdaX against AdamW on one task, in README.md."""

    data: str
    baseline: str
    verdict: str
    provisional: bool
    n: int
    caveats: tuple[str, ...] = ()


def _comparisons(root: Path) -> list[TaskResult]:
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    found = []
    for task in (current(each, judged) for each in TASKS):
        row = judged.get(task.claim, {"verdict": NOT_RUN})
        if row["verdict"] != NOT_RUN:
            data = f"{task.data}{'*' * bool(task.stands_for)}, {task.task.rpartition(', ResNet')[0] or task.task}"
            only = "inconclusive without pairing by seed" if unpaired(row) else ""
            caveats = tuple(filter(None, (only, task.caveat)))
            found.append(
                TaskResult(data, task.baseline, row["verdict"], row["provisional"], row["n"], caveats)
            )
    if seen := _transformer(root):
        data = "bytes of enwik8, transformer, b2·T = 3"
        found.append(TaskResult(data, "AdamW", *_judged(seen), seen.n))
    return found


def _tuned(found: list[TaskResult]) -> str:
    """How many comparisons have each outcome."""
    text = "- **AdaX or AdamW?** "
    if not found:
        return text + "The comparison is not run yet."
    counts = []
    for verdict, outcome in COUNTED.items():
        mine = [each for each in found if each.verdict == verdict]
        few = sum(each.provisional for each in mine)
        marked = f" ({'' if few == len(mine) else f'{few} of them '}provisional)" if few else ""
        counts += [f"{outcome} in {len(mine)}{marked}"] if mine else []
    return (
        f"{text}Keep AdamW unless AdaX is better in a comparison on your own task. Of {len(found)} comparisons with "
        "AdamW or Adam (table below), with the same number of settings tried for each, AdaX was "
        f"{listed(counts)}."
    )


def _shown(found: list[TaskResult]) -> tuple[str, ...]:
    if not found:
        return ()
    cells = []
    for each in found:
        marks = [*(["provisional"] * each.provisional), *each.caveats]
        outcome = OUTCOMES[each.verdict] + (f" ({', '.join(marks)})" if marks else "")
        cells.append((each.data, each.baseline, outcome, each.n))
    note = (
        "\\* a [stand-in](docs/reproduction.md#scope) for a data set of the paper. *Provisional*: fewer than "
        f"{ENOUGH} seeds. One seed chose the settings (three on Penn Treebank). "
        "[b2·T](docs/hyperparameters.md#b2-think-in-b2t): AdaX's growth rate times the steps of the run."
    )
    return ("", markdown.table(("data", "AdaX compared with", "result", "seeds"), cells), "", note)


def _speed(root: Path) -> str:
    record = markdown.read(root, gpu_step.RECORD)
    if record is None:
        return "- **Speed**: not measured yet (`make bench-gpu`)."
    old = ", made before the latest changes to the step" if record.get("since") else ""
    text = (
        f"- **Speed** on one {record['environment']['gpu']}, compared with torch's fused AdamW: a step of AdaXW is "
        f"{gpu_step.summary(record)} ([measurements](docs/speed.md){old})"
    )
    mine = markdown.read(root, "adamw_step.json")
    return text + (f"; {adamw.summary(mine)} ([measurements](docs/adamw.md#speed))" if mine else "") + "."
