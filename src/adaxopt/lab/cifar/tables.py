"""Tables of the CIFAR-10 studies in Markdown, from the records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adaxopt.lab import stats
from adaxopt.lab.cifar.book import STUDIES, Study
from adaxopt.lab.cifar.claim import UNTIL
from adaxopt.lab.cifar.claims import diverged
from adaxopt.lab.cifar.drive import records

Lines = Sequence[Mapping[str, Any]]
TITLES = {
    "sgdm-5e-4": "SGDM, L2 5e-4 (released code)",
    "sgdm-1e-4": "SGDM, L2 1e-4 (the paper's text)",
    "adamw": "AdamW",
    "amsgradw": "AMSGrad(W)",
    "adaxw": "AdaX-W",
}


def table(name: str, root: Path = Path("records")) -> str:
    """A study's table from the committed records; what was not run says so."""
    found = records(root / "cifar10" / f"{name}.jsonl")
    if not found:
        return f"*CIFAR-10, {name}: not run yet (`adax reproduce cifar10/{name}`).*"
    return show(STUDIES[name], found)


def show(study: Study, found: Lines) -> str:
    """A study's rows: ours with n and interval, the paper's beside it."""
    epoch = min(UNTIL, found[0]["recipe"]["epochs"])
    head = f"| | n | test accuracy, % | 95% interval | paper | training accuracy at epoch {epoch}, % |"
    lines = [head, "|---|---|---|---|---|---|"]
    for row in study.rows:
        mine = [r for r in found if r["row"] == row.name]
        good = [r for r in mine if not diverged(r)]
        paper = f"{row.paper[0]:.2f} ± {row.paper[1]:.2f}" if row.paper else ""
        title = TITLES.get(row.name, row.name)
        if not good:
            lines.append(
                f"| {title} | 0 | {f'all {len(mine)} failed' if mine else 'not run'} | | {paper} | |"
            )
            continue
        seen = stats.t_interval([r["test_accuracy"] for r in good])
        early = stats.mean([r["curve"]["train_accuracy"][:UNTIL][-1] for r in good])
        interval = f"{seen.low:.2f} to {seen.high:.2f}" if seen.n > 1 else "–"
        lost = f" ({len(mine) - len(good)} failed)" if len(mine) > len(good) else ""
        lines.append(f"| {title} | {seen.n}{lost} | {seen.mean:.2f} | {interval} | {paper} | {early:.1f} |")
    return "\n".join(lines) + "\n\n" + caption(study, found[0])


def caption(study: Study, record: Mapping[str, Any]) -> str:
    """What was run, on what."""
    device = record["environment"]["hardware"]["device"]
    precision = {"bf16": "bfloat16 autocast", "tf32": "TF32", "fp32": "float32"}[record["precision"]]
    return (
        f"CIFAR-10, {record['recipe']['model'].replace('resnet', 'ResNet-')}, {record['recipe']['epochs']} epochs, "
        f"batch {record['recipe']['batch']}, {precision}, accuracy of the last epoch; {device}, "
        f"{record['together']} runs at once in {record['seconds'] / 60:.1f} minutes. "
        f"`adax reproduce cifar10/{study.name}`. AdaX as the paper has it (`wake=False`). {study.note}"
    )


def not_run(root: Path = Path("records")) -> list[str]:
    """The studies that have no record yet."""
    return [name for name in STUDIES if not (root / "cifar10" / f"{name}.jsonl").is_file()]


def throughput(root: Path = Path("records")) -> str:
    """Seconds per model and epoch, by the number of networks at once."""
    record = json.loads((root / "cifar10" / "throughput.json").read_text())
    lines = ["| networks at once | precision | training | testing |", "|---|---|---|---|"]
    for row in record["rows"]:
        cuts = "" if row["cuts"] == "final" else " (earlier cuts)"
        precision = row.get("precision", record["precision"])
        times = f"{row['train_seconds']:.3f} | {row['test_seconds']:.3f}"
        lines.append(f"| {row['models']}{cuts} | {precision} | {times} |")
    return "\n".join(lines)
