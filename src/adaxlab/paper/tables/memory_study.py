"""The tables of the memory study, from the records: what each memory reached over the learning rates, and the verdicts
on the final runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaxlab import markdown, records, stats
from adaxlab.claim import link, words
from adaxlab.paper import claims, drawn, memory, memory_chart, memory_rule
from adaxlab.paper.memory_finals import FINALS, TASKS, StudyTask, claim_id
from adaxlab.paper.tables.exhibits import difference
from adaxlab.summary import Comparison, best_rate, summarise

FIGURE, FINAL_FIGURE = "memory-study", "memory-finals"


def found(root: Path, task: StudyTask) -> Comparison | None:
    """The screen of a task; None without its record."""
    runs = records.load(root / "records", task.screen.name)
    return summarise(task.screen, runs) if runs else None


def trials(screen: Comparison) -> memory_rule.Screen:
    """The trials of each memory."""
    return {row.name: row.trials for row in screen.rows}


def section(root: Path) -> str:
    """The figures and, for each task, the tables of the screen and of the final runs."""
    screens = {task.screen.name: screen for task in TASKS if (screen := found(root, task))}
    chosen = FINALS[TASKS[0].screen.name].rates
    return "\n\n".join(
        [
            drawn.image(FIGURE, "Result against learning rate, one line per memory", "images"),
            "The results of every memory at every learning rate: [transformer](gpt.md#gpt-memory-screen), "
            "[CIFAR-10](cifar10.md#memory-screen).",
            *(
                f"### {task.title}\n{_screen(task, screens[task.screen.name], list(chosen))}{_finals(task, root)}"
                for task in TASKS
            ),
        ]
    )


def judged(root: Path) -> dict[str, Mapping[str, Any]]:
    """The committed verdicts by the ids of their claims."""
    return {row["id"]: row for row in claims.committed(root / "records")}


def with_interval(
    task: StudyTask, kind: str, rows: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """The verdicts of one kind ("best", "wide", "same") that have an interval, by memory."""
    made = {name: rows.get(claim_id(task, kind, name)) for name in FINALS[task.screen.name].rates}
    return {name: row for name, row in made.items() if row and (row.get("estimate") or {}).get("text")}


def finals(root: Path) -> list[tuple[StudyTask, float, dict[str, memory_chart.Seen]]]:
    """What the figure of the final runs shows; empty without their verdicts."""
    rows = judged(root)
    made: list[tuple[StudyTask, float, dict[str, memory_chart.Seen]]] = []
    for task in TASKS:
        kinds: dict[str, memory_chart.Seen] = {
            kind: [
                (memory_rule.label(name), e["mean"], e["low"], e["high"])
                for name, e in (
                    (name, row["estimate"]) for name, row in with_interval(task, kind, rows).items()
                )
            ]
            for kind in ("best", "wide")
        }
        if not all(kinds.values()):
            return []
        made.append((task, FINALS[task.screen.name].above, kinds))
    return made


def _screen(task: StudyTask, screen: Comparison, finals: list[str]) -> str:
    """The best rate and the range of every memory."""
    tolerance, higher, every = memory.TOLERANCE[task.screen.name], screen.higher_is_better, trials(screen)
    reached = memory_rule.level(every, higher)
    assert reached is not None
    rows = []
    for name, tried in every.items():
        lr = best_rate(tried, higher)
        value = tried[lr] if lr is not None else None
        edge = {min(tried): " (smallest)", max(tried): " (largest)"}.get(lr, "") if lr is not None else ""
        rows.append(
            (
                memory_rule.label(name),
                "" if lr is None else f"{lr:g}{edge}",
                "diverged" if value is None else f"{task.scale * value:.{task.digits}f}",
                memory_rule.shown(memory_rule.in_range(tried, reached, tolerance, higher), list(tried)),
                "fixed" if name in memory_rule.KEPT else "chosen" if name in finals else "",
            )
        )
    head = ("memory", "best lr", f"result, {task.quantity}", "rates in the range", "final runs")
    return (
        markdown.table(head, rows)
        + "\n\nOne seed on held-out data. A rate is in the range if its result is not worse than the best of "
        f"{memory_rule.KEPT[0]} by more than {task.limit}. *Fixed*: in the final runs by the rule; *chosen*: by the "
        "transformer's screen." + _above(task, every, higher)
    )


def _above(task: StudyTask, every: memory_rule.Screen, higher: bool) -> str:
    """Which memories the screen has in the range at the smallest lr above that of the first one."""
    tolerance = memory.TOLERANCE[task.screen.name]
    final = memory_rule.final(every, tuple(every), tolerance, higher)
    reached = memory_rule.level(every, higher)
    assert reached is not None
    good = [n for n in every if final.above in memory_rule.in_range(every[n], reached, tolerance, higher)]
    first = memory_rule.KEPT[0]
    groups = {
        f"with a wider range (also in it at every rate where {first} is)": [
            n for n in good if n in final.covers
        ],
        f"with a shifted range (out of it at some smaller rate where {first} is in it)": [
            n for n in good if n not in final.covers
        ],
    }
    finals = FINALS[task.screen.name].rates

    def named(name: str) -> str:
        return memory_rule.label(name) + (" (in the final runs)" if name in finals else "")

    lines = [f"- {what}: {'; '.join(map(named, names))}" for what, names in groups.items() if names]
    head = f"At lr {final.above:g}, the smallest above the range of {first},"
    return f"\n\n{head} these memories are in the range:\n\n" + "\n".join(lines)


def _finals(task: StudyTask, root: Path) -> str:
    """The verdicts on the final runs."""
    final, verdicts, rows, first = FINALS[task.screen.name], judged(root), [], memory_rule.KEPT[0]
    for name, lr in final.rates.items():
        covers = "" if name == first else "yes" if name in final.covers else "no"
        cells: list[object] = [memory_rule.label(name), f"{lr:g}", covers]
        for kind in ("best", "wide", "same"):
            row = verdicts.get(claim_id(task, kind, name))  # the first one has no difference from itself
            cells += [difference(row), link(row["id"], words(row))] if row else ["", ""]
        rows.append(cells)
    head = (
        "memory",
        "best lr",
        f"range contains that of {first}",
        f"better than {first}, each at its best lr (95%)",
        "verdict: better",
        f"at lr {final.above:g}, better than {first} at its best lr (95%)",
        f"verdict: at most {task.limit} worse",
        f"post hoc: better than {first}, both at lr {final.above:g} (95%)",
        "verdict: better",
    )
    text = (
        f"Final runs on n = {task.seeds} new seeds, in {task.unit}.{_noise(task, root)} The intervals are plain 95% "
        "intervals. Verdicts are corrected for multiple tests, so an interval can exclude 0 while the verdict "
        "is inconclusive."
    )
    return f"\n\n{text}\n\n{markdown.table(head, rows)}"


def _noise(task: StudyTask, root: Path) -> str:
    """How much the paired differences vary at the best rates, and how far the seeds of the first memory are apart."""
    scores: dict[str, dict[int, float]] = {}
    for run in records.load(root / "records", task.best):
        if run.done and run.done["metric"] is not None:
            scores.setdefault(run.row, {})[run.spec["seed"]] = task.scale * run.done["metric"]
    first = scores.pop(memory_rule.KEPT[0], {})
    pairs = ([x - first[seed] for seed, x in each.items() if seed in first] for each in scores.values())
    deviations = sorted(stats.sd(each) for each in pairs if len(each) > 1)
    if not deviations:
        return ""
    low, high, apart = (
        f"{x:.{task.digits}f}"
        for x in (deviations[0], deviations[-1], max(first.values()) - min(first.values()))
    )
    return (
        f" At the best rates the paired differences have standard deviations of {low} to {high}, and the seeds of "
        f"{memory_rule.KEPT[0]} a range of {apart}."
    )
