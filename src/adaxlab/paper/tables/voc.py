"""Tables of the segmentation studies in Markdown, from the records."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

from adaxlab import markdown, stats
from adaxlab.measures import MEASURES
from adaxlab.paper import catalogue, drawn
from adaxlab.provenance import made_at, not_complete
from adaxlab.records import load
from adaxlab.report.names import title
from adaxlab.store import RunRecord
from adaxlab.study import Study

iou, early_loss = MEASURES["IoU"].of, MEASURES["early loss"].of


def table(name: str, root: Path) -> str:
    """A study's table from the committed records, or a note that it was not run."""
    found = load(root / "records", f"voc/{name}")
    if not found:
        return not_complete(catalogue.study(f"voc/{name}"), root)
    return f"{show(catalogue.study(f'voc/{name}'), found)}\n\n{drawn.shown(f'voc-{name}')}"


def show(study: Study, found: Sequence[RunRecord]) -> str:
    """A row a method: settings, n, IoU with interval, IoU at the quarters, training loss, the paper's."""
    steps = [line["step"] for line in next((r.metrics for r in found if r.metrics), [])]
    tuned = ("learning rates tried: validation IoU, one seed",) if study.tuning else ()
    head = ("", "lr, b2", *tuned, "n", "mean IoU, % (95%)", f"at {' / '.join(f'{s:,}' for s in steps)} steps")
    head = (*head, "training loss, mean over the first three quarters (first quarter)", "paper, on VOC2012")
    rows = []
    for row in study.rows:
        mine = _mine(found, row.name, "final")
        paper = row.paper
        beside = f"{paper[0]:.2f} ± {paper[1]:.2f}" if paper else ""
        cells = _cells(mine) if mine else ["not run", "0", "", "", ""]
        if study.tuning:
            cells.insert(1, _trials(found, row.name))
        rows.append([title(row.name), *cells, beside])
    return markdown.table(head, rows) + f"\n\n{study.title}. {study.note} {_caption(found)}"


def _cells(mine: Sequence[RunRecord]) -> list[str]:
    options = mine[0].spec["options"]
    b2 = f", {options['betas'][1]:g}" if "betas" in options else ""
    values = [value for run in mine if (value := iou(run)) is not None]
    lost = f" ({len(mine) - len(values)} diverged)" if len(values) < len(mine) else ""
    ended = [run for run in mine if iou(run) is not None]
    if not values:
        return [f"{options['lr']:g}{b2}", f"0{lost}", "diverged", "", ""]
    seen = stats.t_interval(values)
    spread = f" ({seen.low:.2f} to {seen.high:.2f})" if seen.n > 1 else ""
    quarters = zip(*([100 * line["metric"] for line in run.metrics] for run in ended), strict=True)
    return [
        f"{options['lr']:g}{b2}",
        f"{seen.n}{lost}",
        f"{seen.mean:.2f}{spread}",
        " / ".join(f"{stats.mean(quarter):.1f}" for quarter in quarters),
        _losses(ended),
    ]


def _losses(ended: Sequence[RunRecord]) -> str:
    """As `faster` is judged; the first quarter alone beside it."""
    early = [loss for run in ended if (loss := early_loss(run)) is not None]
    first = stats.mean([run.metrics[0]["train_loss"] for run in ended])
    return f"{stats.mean(early):.3f} ({first:.3f})"


def _mine(found: Sequence[RunRecord], row: str, purpose: str) -> list[RunRecord]:
    return [run for run in found if (run.spec["optimizer"], run.spec["purpose"]) == (row, purpose)]


def _trials(found: Sequence[RunRecord], row: str) -> str:
    """The rates with their IoU on the validation split; the best at the first or last is marked."""
    tried = {run.spec["options"]["lr"]: iou(run) for run in _mine(found, row, "tune")}
    shown = [
        f"{lr:g}: {'diverged' if value is None else f'{value:.1f}'}" for lr, value in sorted(tried.items())
    ]
    good = {lr: value for lr, value in tried.items() if value is not None}
    best = max(good, key=lambda lr: good[lr]) if good else None
    edge = " (edge)" if len(tried) > 1 and best in (min(tried), max(tried)) else ""
    return ", ".join(shown) + edge


def _caption(found: Sequence[RunRecord]) -> str:
    return f"ResNet-50 from ImageNet, batch 10, crop 321, poly 0.9; {made_at(found)}."


def camvid(root: Path) -> str:
    return table("camvid", root)


def tuning(root: Path) -> str:
    return table("tuning", root)


def speed(root: Path) -> str:
    """Milliseconds of a step, row by row, from records/voc/speed.json."""
    path = root / "records" / "voc" / "speed.json"
    if not path.is_file():
        return "*Not measured yet (`python benchmarks/voc.py`).*"
    record = json.loads(path.read_text())
    rows = [
        (title(row), *(f"{ms:.2f}" for ms in (statistics.median(each), min(each), max(each))), len(each))
        for row, each in record["ms"].items()
    ]
    where = record["environment"]
    return markdown.table(("", "ms per step, median", "fastest round", "slowest round", "rounds"), rows) + (
        f"\n\nRows alternating, {record['steps']} steps per round, with the batch and crops of the study; "
        f"{where['gpu']}, torch "
        f"{where['torch']}. `python benchmarks/voc.py`."
    )


SECTIONS = {"voc-camvid": camvid, "voc-tuning": tuning, "voc-speed": speed}
