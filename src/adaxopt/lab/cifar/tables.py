"""Tables of the CIFAR-10 studies in Markdown, from the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxopt.lab import stats
from adaxopt.lab.cifar.book import STUDIES, TUNED, Row, Study
from adaxopt.lab.cifar.claim import UNTIL
from adaxopt.lab.cifar.claims import diverged
from adaxopt.lab.cifar.drive import records

Lines = Sequence[Mapping[str, Any]]
TITLES = {
    "sgdm": "SGDM",
    "sgdm-5e-4": "SGDM, L2 5e-4 (released code)",
    "sgdm-1e-4": "SGDM, L2 1e-4 (the paper's text)",
    "adamw": "AdamW",
    "amsgradw": "AMSGrad(W)",
    "adaxw": "AdaX-W",
    "adax": "AdaX",
    "padax": "Padax",
    "adam": "Adam",
    "amsgrad": "AMSGrad",
    "padam": "Padam",
    "adagrad": "AdaGrad",
    "rmsprop": "RMSProp",
    "adashift": "AdaShift",
    "nosadam": "NosAdam",
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
        f"These are the paper's learning rates. With {tries} tried for each method, one run each, the best held-out "
        f"accuracies are {said} ([tuning](docs/cifar10.md#tuning)); "
    )
    tested = records(root / "cifar10" / "tuned.jsonl")
    if not tested:
        return sentence + "`cifar10/tuned` asks whether the order stays."
    runs = {row.name: [r["test_accuracy"] for r in tested if r["row"] == row.name] for row in TUNED.rows}
    means = ", ".join(
        f"{stats.mean(values):.2f} ({title(row)}, n = {len(values)})" for row, values in runs.items()
    )
    return sentence + f"the test accuracies there are {means} ([tuned](docs/cifar10.md#tuned))."


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
        *([f"{stats.mean([r['seconds'] for r in good]):.1f}"] if times else []),
    ]


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
    ).rstrip()


def _stacks(found: Lines) -> str:
    """How many networks trained together, in what time; those of other studies in a common stack count too."""
    own = dict.fromkeys((r["together"], r["seconds"]) for r in found if "same_run_as" not in r)
    if not own:
        return "all of them other studies' runs"
    return " and ".join(f"{n} networks at once in {seconds / 60:.1f} minutes" for n, seconds in own)


def not_run(root: Path = Path("records")) -> list[str]:
    """The studies that have no record yet."""
    return [name for name in STUDIES if not (root / "cifar10" / f"{name}.jsonl").is_file()]
