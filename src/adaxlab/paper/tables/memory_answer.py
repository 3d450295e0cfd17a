"""The first lines of the memory study's page, from the verdicts: what the final runs decide."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaxlab import records
from adaxlab.claim import VERDICTS, Claim, link
from adaxlab.judge import judge
from adaxlab.paper import memory_finals, memory_rule
from adaxlab.paper.memory_finals import FINALS, TASKS, Decision, StudyTask
from adaxlab.paper.tables.memory_study import judged, with_interval
from adaxlab.report.numbers import listed

Rows = Mapping[str, Mapping[str, Any]]
FIRST, DEFAULT = memory_rule.KEPT[:2]
"""AdamW's memory with b2 = 0.95, and with torch's default b2 = 0.999."""
NOT_COMPLETE = (
    "*Not complete.* The final runs have not ended ([the queue](queue.md) has the commands and their cost), and a "
    "screen with one seed decides nothing. To choose between AdamW's memory and AdaX's, see [Should I use "
    "AdaX?](should-i-use-adax.md)"
)


def answer(root: Path) -> str:
    rows = judged(root)
    decision = memory_finals.decide(rows, FINALS)
    if decision is None:
        return NOT_COMPLETE
    if decision.options:
        names = listed([memory_rule.label(name) for name in decision.options])
        text = (
            f"**On both tasks {names} trains well over a wider range of learning rates than {FIRST} (AdamW's memory "
            "with b2 = 0.95), and is not worse at its best one.**"
        )
    else:
        both = "both tasks" if memory_finals.met(decision) else "either task"
        text = (
            f"**No memory met the study's rule on {both}, so none is recommended.** A memory is the way in which the "
            f"optimizer averages squared gradients. The rule requires a wider range of learning rates than that of "
            f"{FIRST} (AdamW's memory with b2 = 0.95), and a result that is not worse at the best learning rate."
        )
    text += " In the list, + is better, and brackets are plain 95% intervals."
    lines = [_at_best(task, rows, root) for task in TASKS] + [_at_large(task, rows, root) for task in TASKS]
    lines += [*_opposite(rows), *_undecided(decision), *_practice(rows)]
    return "\n".join([text, "", *(f"- {line}" for line in lines)])


def _at_best(task: StudyTask, rows: Rows, root: Path) -> str:
    """How far the memories are apart at their best rates, and which of them are better or worse."""
    seen = with_interval(task, "best", rows)
    where = f"*Each memory at its best lr, {subject(task)}*"
    if not seen:
        return f"{where}: all runs of the other memories diverged."
    means = sorted(row["estimate"]["mean"] for row in seen.values())
    low, high = (f"{mean:+.{task.digits}f}" for mean in (means[0], means[-1]))
    better = _links(_with(seen, True))
    worse = _links({name: row for name, row in seen.items() if memory_finals.worse(row)})
    which = f"significantly better: {listed(better)}" if better else "none is significantly better"
    if worse:
        which += (
            f"; worse by the rule, which uses the plain interval without Holm's correction: {listed(worse)}"
        )
    text = (
        f"{where} (n = {task.seeds}): mean differences from {FIRST} of {low} to {high} {task.unit}; {which}."
    )
    return text + _to_default(task, task.best, {name: name for name in _with(seen, True)}, DEFAULT, root)


def _to_default(task: StudyTask, study: str, better: Mapping[str, str], default: str, root: Path) -> str:
    """Post hoc: how far the better memories, given with their rows, are from AdamW's with torch's default b2."""
    claims = [
        Claim(name, "", "", study, "better", task.measure, row, default, ours=True, post_hoc=True)
        for name, row in better.items()
        if name != DEFAULT
    ]
    found = judge(claims, records.load(root / "records", study)) if claims else []
    shown = [
        f"{memory_rule.label(row['id'])} {row['estimate']['text']}"
        for row in found
        if row["estimate"].get("text")
    ]
    if not shown:
        return ""
    return f" Post hoc, compared with {DEFAULT}, AdamW's memory with torch's default b2: {listed(shown)}."


def _at_large(task: StudyTask, rows: Rows, root: Path) -> str:
    """Which memories are within the tolerance at the larger rate, and which differ there from the first one."""
    above, seen = FINALS[task.screen.name].above, with_interval(task, "wide", rows)
    where = f"*All memories at lr {above:g}, {subject(task)}*"
    if not seen:
        return f"{where}: all runs diverged."
    parts = []
    for verdict, word in ((True, "within"), (False, "outside")):
        names = _links(_with(seen, verdict))
        parts += [f"{word} the tolerance of {task.limit}: {listed(names)}"] if names else []
    names = [memory_rule.label(name) for name in _with(seen, None)]
    parts += [f"not decided: {listed(names)}"] if names else []
    text = f"{where}, compared with {FIRST} at its best rate: {'; '.join(parts)}."
    same = with_interval(task, "same", rows)
    for verdict, word in ((True, "better"), (False, "worse")):
        names = _links(_with(same, verdict))
        if names:
            text += f" Post hoc, significantly {word} than {FIRST} at the same rate: {listed(names)}."
    final = FINALS[task.screen.name]
    better = {name: memory_finals.large(name, final) for name in _with(same, True)}
    return text + _to_default(task, task.wide, better, memory_finals.large(DEFAULT, final), root)


def _opposite(rows: Rows) -> list[str]:
    """A sentence about the memories that are within the tolerance on one task and outside it on another."""
    seen = [(task, with_interval(task, "wide", rows)) for task in TASKS]
    return [
        f"{memory_rule.label(name)} was within the tolerance at the larger rate on {subject(here)} and outside it on "
        f"{subject(there)}. The larger rate is {_times(here, name)} times this memory's best rate on {subject(here)} "
        f"and {_times(there, name)} times on {subject(there)}."
        for here, mine in seen
        for there, theirs in seen
        for name in _with(mine, True)
        if name in _with(theirs, False)
    ]


def _times(task: StudyTask, memory: str) -> str:
    """How many times the best rate of a memory the larger rate is."""
    final = FINALS[task.screen.name]
    return f"{final.above / final.rates[memory]:.3g}"


def _undecided(decision: Decision) -> list[str]:
    """Where the control is undecided, and which memories would be wider without it."""
    if not decision.undecided:
        return []
    where = listed([subject(task) for task in decision.undecided])
    met = [(subject(task), decision.good[task.screen.name]) for task in decision.undecided]
    would = [
        f"{listed([memory_rule.label(name) for name in names]) if names else 'no memory'} on {task}"
        for task, names in met
    ]
    return [
        f"*Not decided*, on {where}: whether {FIRST} itself is worse by more than the tolerance at the larger rate. "
        f"The rule counts a memory as wider only if {FIRST} fails at that rate. Without this condition the wider ones "
        f"would be: {'; '.join(would)}."
    ]


def _practice(rows: Rows) -> list[str]:
    """What a change of the memory and what a larger rate cost, on average."""
    memories, rates = [], []
    for task in TASKS:
        best, wide = with_interval(task, "best", rows), with_interval(task, "wide", rows)
        if not best or FIRST not in wide:
            return []
        most = max(abs(row["estimate"]["mean"]) for row in best.values())
        memories.append(f"{most:.{task.digits}f} {task.unit} on {subject(task)}")
        cost = -wide[FIRST]["estimate"]["mean"]
        rates.append(f"{cost:.{task.digits}f} {task.unit} at {_times(task, FIRST)} times its best rate")
    return [
        "*For practice*: tune the learning rate before the memory. At tuned rates, another memory changed the mean by "
        f"at most {listed(memories)}. The result of {FIRST} was worse by {listed(rates)}."
    ]


def subject(task: StudyTask) -> str:
    """
    >>> [subject(task) for task in TASKS]
    ['the transformer', 'CIFAR-10']
    """
    name = task.title.partition(",")[0]
    return name if name == name.upper() else f"the {name.lower()}"


def _with(rows: Rows, outcome: bool | None) -> Rows:
    """The memories with this verdict."""
    return {name: row for name, row in rows.items() if row["verdict"] == VERDICTS[outcome]}


def _links(rows: Rows) -> list[str]:
    """Links to the claims, with their intervals."""
    return [
        f"{link(row['id'], memory_rule.label(name))} ({row['estimate']['text']})"
        for name, row in rows.items()
    ]
