"""Tables of the CIFAR-10 studies in Markdown, from the records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from adaxlab import stats
from adaxlab.cifar.adopt import whole
from adaxlab.cifar.book import STUDIES, TUNED, Row, Study
from adaxlab.cifar.drive import records
from adaxlab.records import failed
from adaxlab.report import names

Lines = Sequence[Mapping[str, Any]]
UNTIL = 99
"""Epochs before the first drop of the learning rate."""
diverged = partial(failed, family="cifar10")
TITLES = {
    **names.TITLES,
    "sgdm-5e-4": "SGDM, L2 5e-4 (released code)",
    "sgdm-1e-4": "SGDM, L2 1e-4 (the paper's text)",
}


def table(name: str, root: Path = Path("records")) -> str:
    """A study's table from the committed records; what was not run says so."""
    found = records(root / "cifar10" / f"{name}.jsonl")
    if not found:
        return f"*CIFAR-10, {name}: not run yet (`adax reproduce cifar10/{name}`).*"
    return show(STUDIES[name], found)


def show(study: Study, found: Lines) -> str:
    """A study's rows: ours with n and interval, the paper's beside it where it has one."""
    epoch = min(UNTIL, found[0]["recipe"]["epochs"])
    judged = "held-out" if study.holdout else "test"
    paper = any(row.paper for row in study.rows)
    head = ["", "n", f"{judged} accuracy, %", "95% interval", *(["paper"] if paper else [])]
    head += [f"training accuracy at epoch {epoch}, %", "training loss at the end"]
    head += ["seconds"] if study.alone else []
    lines = [_line(head), "|" + "---|" * len(head)]
    for row in study.rows:
        cells = _cells(row, [r for r in found if r["row"] == row.name], paper, study.alone)
        if study.holdout and row.name in best(found):
            cells[2] = f"**{cells[2]}**"
        lines.append(_line(cells + [""] * (len(head) - len(cells))))
    return "\n".join(lines) + "\n\n" + caption(study, found)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def best(found: Lines) -> list[str]:
    """The row of each method (the first word of a row's name) that is best: what tuning is for."""
    rows: dict[str, Mapping[str, Any]] = {}
    for line in found:
        method = line["row"].split()[0]
        rows[method] = max(rows.get(method, line), line, key=lambda r: r["test_accuracy"])
    return [line["row"] for line in rows.values()]


def at_best(root: Path = Path("records")) -> str:
    """A sentence beside the table at the paper's rates: what each method reaches at the best of the rates tried."""
    found = records(root / "cifar10" / "tuning.jsonl")
    if not found:
        return ""
    rows = {r["row"]: f"{r['test_accuracy']:.2f}" for r in found}
    said = ", ".join(f"{rows[row]} ({title(row)})" for row in best(found))
    tries = len(rows) // len(best(found))
    sentence = (
        f"These are the paper's learning rates. With {tries} tried for each method, one run each, the best "
        f"accuracies on images kept from training are {said} ([tuning](docs/cifar10.md#tuning)). "
    )
    tested = [r for r in records(root / "cifar10" / "tuned.jsonl") if not diverged(r)]
    runs = {row.name: [r["test_accuracy"] for r in tested if r["row"] == row.name] for row in TUNED.rows}
    if not all(runs.values()):
        return sentence + "`cifar10/tuned` asks whether the order stays."
    means = ", ".join(
        f"{stats.mean(values):.2f} ({title(row)}, n = {len(values)})" for row, values in runs.items()
    )
    return sentence + (
        f"Each at that rate, the test accuracies are {means} ([tuned](docs/cifar10.md#tuned)): AdaX-W's lead goes "
        f"{_lead('adamw', runs, root)} and {_lead('amsgradw', runs, root)}."
    )


def _lead(row: str, tuned: Mapping[str, list[float]], root: Path) -> str:
    """AdaX-W's lead at the paper's rates and at the best ones."""
    main = [r for r in records(root / "cifar10" / "table2.jsonl") if not diverged(r)]
    ends = {r: stats.mean([x["test_accuracy"] for x in main if x["row"] == r]) for r in ("adaxw", row)}
    after = stats.mean(tuned["adaxw"]) - stats.mean(tuned[row])
    return f"from {ends['adaxw'] - ends[row]:+.2f} to {after:+.2f} points over {title(row)}"


def _cells(row: Row, mine: Lines, paper: bool, times: bool) -> list[str]:
    good = [r for r in mine if not diverged(r)]
    theirs = [f"{row.paper[0]:.2f} ± {row.paper[1]:.2f}" if row.paper else ""] if paper else []
    if not good:
        return [title(row.name), "0", f"all {len(mine)} failed" if mine else "not run", "", *theirs]
    seen = stats.t_interval([r["test_accuracy"] for r in good])
    early = stats.mean([r["curve"]["train_accuracy"][:UNTIL][-1] for r in good])
    lost = f" ({len(mine) - len(good)} failed)" if len(mine) > len(good) else ""
    whose = {r["same_run_as"].split(":")[0] for r in mine if "same_run_as" in r}
    return [
        title(row.name) + (f" ({', '.join(sorted(whose))}'s runs)" if whose else ""),
        f"{seen.n}{lost}",
        f"{seen.mean:.2f}",
        f"{seen.low:.2f} to {seen.high:.2f}" if seen.n > 1 else "–",
        *theirs,
        f"{early:.1f}",
        f"{stats.mean([r['train_loss'] for r in good]):.4f}",
        *([_seconds(good)] if times else []),
    ]


def _seconds(good: Lines) -> str:
    """Mean seconds of a stack, with the number of stacks: runs that trained together have one time."""
    stacks = _own(good)
    return f"{stats.mean([seconds for _, seconds in stacks]):.1f} (n = {len(stacks)})"


def again(study: Study, found: Lines, root: Path = Path("records")) -> str:
    """How far runs that were trained a second time, with table2's settings and seeds, ended from table2's own."""

    def key(r: Mapping[str, Any]) -> tuple[Any, ...]:
        return (
            whole(r["optimizer"], r["options"]),
            r["seed"],
            json.dumps(r["recipe"]),
            r["images"],
            r["precision"],
        )

    first = {key(r): r for r in records(root / "cifar10" / "table2.jsonl")}
    rows: dict[str, list[float]] = {}
    for r in found:
        if study.name != "table2" and "same_run_as" not in r and key(r) in first:
            rows.setdefault(r["row"], []).append(r["test_accuracy"] - first[key(r)]["test_accuracy"])
    if not rows:
        return ""
    said = "; ".join(
        f"{title(row)} ended " + (", ".join(f"{d:+.2f}" for d in ds) if any(ds) else "at the same accuracies")
        for row, ds in rows.items()
    )
    return (
        f"These settings and seeds are table2's too, and were trained a second time. Against table2's runs, in points: "
        f"{said}."
    )


def title(row: str) -> str:
    """A row's name in words.

    >>> title("adaxw eps 1e-3"), title("sgdm-1e-4"), title("padax lr 0.1")
    ('AdaX-W, eps 1e-3', "SGDM, L2 1e-4 (the paper's text)", 'Padax, lr 0.1')
    """
    method, _, rest = row.partition(" ")
    return TITLES.get(method, method) + (f", {rest}" if rest else "")


def caption(study: Study, found: Lines) -> str:
    """What was run, on what."""
    record = next((r for r in found if "same_run_as" not in r), found[0])
    device = record["environment"]["hardware"]["device"]
    precision = {"bf16": "bfloat16 autocast", "tf32": "TF32", "fp32": "float32"}[record["precision"]]
    part = f" on the {study.holdout:,} images kept from training" if study.holdout else ""
    return (
        f"CIFAR-10, {record['recipe']['model'].replace('resnet', 'ResNet-')}, {record['recipe']['epochs']} epochs, "
        f"batch {record['recipe']['batch']}, {precision}, accuracy at the last epoch{part}; {device}, "
        f"{_stacks(found)}. "
        f"`adax reproduce cifar10/{study.name}`. AdaX as the paper has it (`wake=False`). {study.note}"
        f"{_limits(study, found)}"
    ).rstrip()


def _limits(study: Study, found: Lines) -> str:
    """What was planned and not done, and how far a number can be trusted, where the records tell."""
    said = []
    seeds = len({r["seed"] for r in found})
    if seeds < study.seeds:
        said.append(f"So far {seeds} of {study.seeds} seeds.")
    if study.holdout:
        share = max(r["test_accuracy"] for r in found) / 100
        error = 100 * (share * (1 - share) / study.holdout) ** 0.5
        said.append(
            f"On {study.holdout:,} images an accuracy has a standard error of {error:.1f} points, besides the seed's."
        )
    if study.alone and any(r["together"] > 1 for r in found):
        many = max(r["together"] for r in found)
        said.append(
            f"This record is of an earlier form of the study: {many} networks of a method at once, one method after "
            "the other, and a first epoch that compiles is in the seconds."
        )
    return "".join(f" {text}" for text in said)


def _own(found: Lines) -> list[tuple[int, float]]:
    """(networks, seconds) of each stack that the lines are of; a network that trained alone is one."""
    own = [(r["together"], r["seconds"]) for r in found if "same_run_as" not in r]
    return [
        *dict.fromkeys(stack for stack in own if stack[0] > 1),
        *(stack for stack in own if stack[0] == 1),
    ]


def _stacks(found: Lines) -> str:
    """How many networks trained together, in what time; those of other studies in a common stack count too."""
    own = _own(found)
    if not own:
        return "all of them other studies' runs"
    alone = [seconds for n, seconds in own if n == 1]
    parts = [f"{n} networks at once in {_time(seconds)}" for n, seconds in own if n > 1]
    parts += [f"one network at a time, {_time(sum(alone))} in all"] if alone else []
    return " and ".join(parts)


def _time(seconds: float) -> str:
    return f"{seconds / 60:.1f} minutes" if seconds >= 60 else f"{seconds:.1f} seconds"


def not_run(root: Path = Path("records")) -> list[str]:
    """The studies that have no record yet."""
    return [name for name in STUDIES if not (root / "cifar10" / f"{name}.jsonl").is_file()]
