"""The page of the memory study, from the records: its answer, what each memory reached over the learning rates, and the
verdicts on the final runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaxlab import markdown, records
from adaxlab.claim import NOT_RUN, VERDICTS, link, words
from adaxlab.paper import claims, drawn, memory, memory_chart, memory_rule
from adaxlab.paper.memory_finals import FINALS, TASKS, StudyTask, claim_id, options
from adaxlab.paper.tables.exhibits import difference
from adaxlab.report.numbers import listed
from adaxlab.summary import Comparison, summarise

FIGURE, FINAL_FIGURE = "memory-study", "memory-finals"


def found(root: Path, task: StudyTask) -> Comparison | None:
    """The screen of a task; None if it has not been run."""
    runs = records.load(root / "records", task.screen.name)
    return summarise(task.screen, runs) if runs else None


def trials(screen: Comparison) -> memory_rule.Screen:
    """The trials of each memory."""
    return {row.name: row.trials for row in screen.rows}


def section(root: Path) -> str:
    """The figures and, for each task, the tables of the screen and of the final runs."""
    screens = [(task, found(root, task)) for task in TASKS]
    figures = []
    if screens[0][1]:
        figures.append(drawn.image(FIGURE, "Result against learning rate, one line per memory", "images"))
    if screens[0][1] and finals(root):
        figures.append(
            drawn.image(FINAL_FIGURE, "Differences of the final runs with their intervals", "images")
        )
    return "\n\n".join(
        [*figures, *(f"### {task.title}\n{_part(task, screen, root)}" for task, screen in screens)]
    )


def answer(root: Path) -> str:
    """The first lines of the page: what the final runs decide."""
    rows = _judged(root)
    decided = options(rows, FINALS)
    if decided is None:
        return (
            "*Not complete.* The final runs have not ended ([the queue](queue.md) has the commands and their cost), "
            "and a screen with one seed decides nothing. To choose between AdamW's memory and AdaX's, see [Should I "
            "use AdaX?](should-i-use-adax.md)"
        )
    earned, closed = decided
    first = memory_rule.KEPT[0]
    if earned:
        text = (
            f"**On both tasks {listed([memory_rule.label(name) for name in earned])} trains well over a wider range of "
            f"learning rates than AdamW's memory ({first}), and is not worse at its best one.**"
        )
    else:
        text = (
            "**Keep the memory that you have, and tune the learning rate.** No memory was shown to train well over a "
            f"wider range of learning rates than AdamW's ({first}) on both tasks, without being worse at its best one."
        )
    lines = [_at_best(task, rows) for task in TASKS] + [_at_large(task, rows) for task in TASKS]
    lines += _opposite(rows)
    if closed:
        where = listed([_subject(task) for task in TASKS if task.title in closed])
        lines.append(
            f"*Not decided*, on {where}: whether {first} itself is worse by more than the tolerance at the larger "
            "rate. The rule requires it, so no memory can count as wider there."
        )
    return "\n".join([text, "", *(f"- {line}" for line in lines)])


def _judged(root: Path) -> dict[str, Mapping[str, Any]]:
    """The committed verdicts by the ids of their claims."""
    return {row["id"]: row for row in claims.committed(root / "records")}


def _subject(task: StudyTask) -> str:
    """
    >>> [_subject(task) for task in TASKS]
    ['the transformer', 'CIFAR-10']
    """
    name = task.title.partition(",")[0]
    return name if name == name.upper() else f"the {name.lower()}"


def _rows(task: StudyTask, kind: str, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The verdicts of one kind that have an interval, by memory."""
    made = {name: rows.get(claim_id(task, kind, name)) for name in FINALS[task.screen.name].rates}
    return {name: row for name, row in made.items() if row and (row.get("estimate") or {}).get("text")}


def _at_best(task: StudyTask, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """How far the memories are apart at their best rates, and which differences are significant."""
    seen, first = _rows(task, "best", rows), memory_rule.KEPT[0]
    where = f"*Each memory at its best lr, {_subject(task)}*"
    if not seen:
        return f"{where}: all runs of the other memories diverged."
    means = sorted(row["estimate"]["mean"] for row in seen.values())
    low, high = (f"{mean:+.{task.digits}f}" for mean in (means[0], means[-1]))
    clear = [_named(name, row) for name, row in seen.items() if row["verdict"] != VERDICTS[None]]
    which = f"significant for {listed(clear)}" if clear else "none of them significant"
    return f"{where}: {low} to {high} {task.unit} compared with {first} (+ is better; n = {task.seeds}), {which}."


def _losses(task: StudyTask, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """What each memory loses at the larger rate, compared with the first one at its best rate; the least first."""
    lost = {name: -row["estimate"]["mean"] for name, row in _rows(task, "wide", rows).items()}
    return dict(sorted(lost.items(), key=lambda item: item[1]))


def _at_large(task: StudyTask, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """The memories that lose least and most at the larger rate, and those that differ there from the first one."""
    above, first, lost = FINALS[task.screen.name].above, memory_rule.KEPT[0], _losses(task, rows)
    where = f"*All memories at lr {above:g}, {_subject(task)}*"
    if not lost:
        return f"{where}: all runs diverged."
    shown = [(memory_rule.label(name), f"{loss:.{task.digits}f}") for name, loss in lost.items()]
    (least, low), (most, high) = shown[0], shown[-1]
    ends = f"{least} loses least ({low} {task.unit}), {most} most ({high})"
    text = f"{where}: compared with {first} at its best rate, {ends}."
    same = _rows(task, "same", rows)
    for verdict, word in ((VERDICTS[True], "better"), (VERDICTS[False], "worse")):
        names = [_named(name, row) for name, row in same.items() if row["verdict"] == verdict]
        if names:
            text += f" Significantly {word} than {first} at the same rate (post hoc): {listed(names)}."
    return text


def _opposite(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A sentence about the memory that loses least on one task and most on the other, if there is one."""
    lost = [(_subject(task), list(_losses(task, rows))) for task in TASKS]
    return [
        f"The memory that loses least on {here} ({memory_rule.label(mine[0])}) loses most on {there}: which memory "
        "tolerated a large learning rate depended on the task."
        for (here, mine), (there, theirs) in (lost, lost[::-1])
        if len(mine) > 1 and len(theirs) > 1 and mine[0] == theirs[-1]
    ]


def _named(name: str, row: Mapping[str, Any]) -> str:
    return f"{link(row['id'], memory_rule.label(name))} ({row['estimate']['text']})"


def finals(root: Path) -> list[tuple[StudyTask, float, dict[str, memory_chart.Seen]]]:
    """What the figure of the final runs shows; empty until those of every task have been judged."""
    rows = _judged(root)
    made: list[tuple[StudyTask, float, dict[str, memory_chart.Seen]]] = []
    for task in TASKS:
        if task.screen.name not in FINALS:
            return []
        kinds: dict[str, memory_chart.Seen] = {
            kind: [
                (memory_rule.label(name), e["mean"], e["low"], e["high"])
                for name, e in ((name, row["estimate"]) for name, row in _rows(task, kind, rows).items())
            ]
            for kind in ("best", "wide")
        }
        if not all(kinds.values()):
            return []
        made.append((task, FINALS[task.screen.name].above, kinds))
    return made


def _chosen(root: Path) -> list[str]:
    """The memories that the screen of the first task chose for the final runs of all tasks."""
    screen = found(root, TASKS[0])
    if screen is None:
        return []
    return memory_rule.chosen(trials(screen), memory.TOLERANCE[screen.study.name], screen.higher_is_better)


def _part(task: StudyTask, screen: Comparison | None, root: Path) -> str:
    if screen is None:
        return records.not_complete(task.screen, root)
    tolerance, higher, every = memory.TOLERANCE[task.screen.name], screen.higher_is_better, trials(screen)
    reached = memory_rule.level(every, higher)
    reason = memory_rule.unfinished(every, tolerance, higher)
    if reached is None:
        return f"*Not complete: {reason}.*"
    chosen = _chosen(root)
    rows = []
    for name, tried in every.items():
        lr = memory_rule.best(tried, higher)
        value = tried[lr] if lr is not None else None
        edge = {min(tried): " (smallest)", max(tried): " (largest)"}.get(lr, "") if lr is not None else ""
        rows.append(
            (
                memory_rule.label(name),
                "" if lr is None else f"{lr:g}{edge}",
                "diverged" if value is None else f"{task.scale * value:.{task.digits}f}",
                memory_rule.shown(memory_rule.in_range(tried, reached, tolerance, higher), list(tried)),
                "fixed" if name in memory_rule.KEPT else "chosen" if name in chosen else "",
            )
        )
    head = (
        "memory",
        "best lr",
        f"result, {task.quantity}",
        "rates in the range",
        "final runs",
    )
    text = (
        markdown.table(head, rows)
        + "\n\nOne seed on held-out data. A rate is in the range if its result is not worse than the best of "
        f"{memory_rule.KEPT[0]} by more than {task.limit}. *Fixed*: in the final runs by the rule; *chosen*: by the "
        "transformer's screen."
    )
    if reason:
        return f"{text}\n\n*Not complete: {reason}.*"
    return text + _above(task, every, higher) + _finals(task, root)


def _above(task: StudyTask, every: memory_rule.Screen, higher: bool) -> str:
    """Which memories the screen has in the range at the smallest lr above that of the first one."""
    tolerance = memory.TOLERANCE[task.screen.name]
    final = memory_rule.final(every, tuple(every), tolerance, higher)
    reached = memory_rule.level(every, higher)
    assert reached is not None
    good = [n for n in every if final.above in memory_rule.in_range(every[n], reached, tolerance, higher)]
    first = memory_rule.KEPT[0]
    groups = {
        f"with every rate of {first} (a wider range)": [n for n in good if n in final.covers],
        f"without some rate of {first} (a moved range)": [n for n in good if n not in final.covers],
    }
    finals = FINALS[task.screen.name].rates if task.screen.name in FINALS else ()

    def named(name: str) -> str:
        return memory_rule.label(name) + (" (in the final runs)" if name in finals else "")

    lines = [f"- {what}: {'; '.join(map(named, names))}" for what, names in groups.items() if names]
    head = f"At lr {final.above:g}, the smallest above the range of {first},"
    return (
        f"\n\n{head} these are in the range:\n\n" + "\n".join(lines)
        if lines
        else f" {head} no memory is in it."
    )


def _finals(task: StudyTask, root: Path) -> str:
    """The verdicts on the final runs; empty as long as they are not planned."""
    final = FINALS.get(task.screen.name)
    if final is None:
        return ""
    judged, rows, first = _judged(root), [], memory_rule.KEPT[0]
    for name, lr in final.rates.items():
        covers = "" if name == first else "yes" if name in final.covers else "no"
        cells: list[object] = [memory_rule.label(name), f"{lr:g}", covers]
        for kind in ("best", "wide", "same"):
            row = judged.get(claim_id(task, kind, name))
            shown = difference(row) if row and row["verdict"] != NOT_RUN else ""
            cells += [shown, link(row["id"], words(row)) if row else ""]
        rows.append(cells)
    head = (
        "memory",
        "best lr",
        f"range contains that of {first}",
        f"better than {first}, each at its best lr (95%)",
        "verdict",
        f"at lr {final.above:g}, better than {first} at its best lr (95%)",
        f"at most {task.limit} worse",
        f"better than {first}, both at lr {final.above:g} (95%)",
        "verdict",
    )
    return f"\n\nFinal runs on n = {task.seeds} new seeds, in {task.unit}:\n\n" + markdown.table(head, rows)
