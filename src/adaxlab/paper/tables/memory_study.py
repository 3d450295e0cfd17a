"""The page of the memory study, from the records: what each memory reached over the learning rates, and the verdicts
on the final runs."""

from __future__ import annotations

from pathlib import Path

from adaxlab import markdown, records
from adaxlab.claim import NOT_RUN, link, words
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
    """What follows from the final runs."""
    decided = options({row["id"]: row for row in claims.committed(root / "records")}, FINALS)
    if decided is None:
        return [
            "### Conclusion\n*Not complete.* The final runs have not ended ([the queue](queue.md) has the commands and "
            "their cost), and a screen with one seed decides nothing. To choose between AdamW's memory and AdaX's, see "
            "[Should I use AdaX?](should-i-use-adax.md)"
        ]
    earned, closed = decided
    first, both = memory_rule.KEPT[0], "without being worse at its best, on both tasks"
    if earned:
        text = f"A wider range than {first}, {both}: {listed([memory_rule.label(name) for name in earned])}."
    else:
        text = f"No memory of the final runs is shown to have a wider range than {first} {both}."
    if closed:
        where = listed([title.partition(",")[0] for title in closed])
        text += (
            f" On {where} the new seeds do not show that {first} is outside the tolerance at the larger learning rate, "
            "so no memory can be wider there."
        )
    return [f"### Conclusion\n{text}"]


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
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    rows, first = [], memory_rule.KEPT[0]
    for name, lr in final.rates.items():
        covers = "" if name == first else "yes" if name in final.covers else "no"
        cells: list[object] = [memory_rule.label(name), f"{lr:g}", covers]
        for kind in ("best", "wide"):
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
    )
    return f"\n\nFinal runs on n = {task.seeds} new seeds, in {task.unit}:\n\n" + markdown.table(head, rows)
