"""The page of the memory study, from the records: what each memory reached over the learning rates, and the verdicts
on the final runs."""

from __future__ import annotations

from pathlib import Path

from adaxlab import markdown, records
from adaxlab.claim import link, words
from adaxlab.paper import claims, drawn, memory, memory_rule
from adaxlab.paper.memory_finals import FINALS, TASKS, StudyTask, claim_id, options
from adaxlab.paper.tables.exhibits import difference
from adaxlab.report.numbers import listed
from adaxlab.summary import Comparison, summarise

FIGURE = "memory-study"


def found(root: Path, task: StudyTask) -> Comparison | None:
    """The screen of a task; None if it has not been run."""
    runs = records.load(root / "records", task.screen.name)
    return summarise(task.screen, runs) if runs else None


def trials(screen: Comparison) -> memory_rule.Screen:
    """The trials of each memory."""
    return {row.name: row.trials for row in screen.rows}


def section(root: Path) -> str:
    screens = [(task, found(root, task)) for task in TASKS]
    figure = ""
    if screens[0][1]:
        figure = drawn.image(FIGURE, "Result against learning rate, one line per memory", "images") + "\n\n"
    parts = [f"### {task.title}\n{_part(task, screen, root)}" for task, screen in screens]
    return figure + "\n\n".join([*parts, *_conclusion(root)])


def _conclusion(root: Path) -> list[str]:
    """What follows from the final runs; empty as long as some are missing."""
    judged = {row["id"]: row["verdict"] for row in claims.committed(root / "records")}
    earned = options(judged, FINALS)
    if earned is None:
        return []
    rule = "has a wider range of learning rates than AdamW's and is not significantly worse at its best on both tasks"
    if not earned:
        return [f"### Conclusion\nNo memory {rule}."]
    return [f"### Conclusion\nBy the rule, {listed([memory_rule.label(name) for name in earned])} {rule}."]


def _chosen(root: Path) -> list[str]:
    """The memories that the screen of the first task chose for the final runs of all tasks."""
    screen = found(root, TASKS[0])
    if screen is None:
        return []
    return memory_rule.chosen(trials(screen), memory.TOLERANCE[screen.study.name], screen.higher_is_better)


def _part(task: StudyTask, screen: Comparison | None, root: Path) -> str:
    if screen is None:
        return f"*Not run yet (`adax reproduce {task.screen.name}`).*"
    tolerance, higher, every = memory.TOLERANCE[task.screen.name], screen.higher_is_better, trials(screen)
    reached = memory_rule.level(every, higher)
    if reached is None:
        return f"*{memory_rule.KEPT[0]} diverged at every learning rate.*"
    chosen = _chosen(root)
    rows = []
    for name, tried in every.items():
        lr = memory_rule.best(tried, higher)
        value = tried[lr] if lr is not None else None
        rows.append(
            (
                memory_rule.label(name),
                "" if lr is None else f"{lr:g}",
                "diverged" if value is None else f"{task.scale * value:.{task.digits}f}",
                len(memory_rule.in_range(tried, reached, tolerance, higher)),
                "kept" if name in memory_rule.KEPT else "chosen" if name in chosen else "",
            )
        )
    head = (
        "memory",
        "best lr",
        f"result, {task.quantity}",
        f"rates in the range, of {len(next(iter(every.values())))}",
        "final runs",
    )
    return (
        markdown.table(head, rows)
        + f"\n\nOne seed on held-out data. A rate is in the range if its result is worse by at most "
        f"{task.tolerance:g} {task.unit} than the best of {memory_rule.KEPT[0]}." + _finals(task, root)
    )


def _finals(task: StudyTask, root: Path) -> str:
    """The verdicts on the final runs; empty as long as they are not planned."""
    final = FINALS.get(task.screen.name)
    if final is None:
        return ""
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    rows = []
    for name, lr in final.rates.items():
        cells: list[object] = [memory_rule.label(name), f"{lr:g}"]
        for kind in ("best", "wide"):
            row = judged.get(claim_id(task, kind, name))
            cells += [difference(row), link(row["id"], words(row))] if row else ["", ""]
        rows.append(cells)
    first = memory_rule.KEPT[0]
    head = (
        "memory",
        "best lr",
        f"better than {first}, each at its best lr (95%)",
        "verdict",
        f"at lr {final.above:g}, better than {first} at its best lr (95%)",
        f"at most {task.tolerance:g} worse",
    )
    return f"\n\nFinal runs on n = {task.seeds} new seeds, in {task.unit}:\n\n" + markdown.table(head, rows)
