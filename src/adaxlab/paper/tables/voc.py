"""Tables of the segmentation studies in Markdown, from the records."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from adaxlab import stats
from adaxlab.markdown import recorded, table
from adaxlab.measures import MEASURES
from adaxlab.paper.tables.study import Column, Layout, Line, Runs
from adaxlab.report.names import title
from adaxlab.study import Study

early_loss = MEASURES["early loss"].of


def layout(study: Study, runs: Runs) -> Layout:
    """Mean IoU in percent, at every quarter of training too."""
    steps = [line["step"] for line in next((r.metrics for r in runs if r.metrics), [])]
    columns = (
        Column(f"at {' / '.join(f'{s:,}' for s in steps)} steps", _quarters),
        Column("training loss, mean over the first three quarters (first quarter)", _losses),
    )
    return Layout("mean IoU, %", columns=columns, setting=lambda study, runs: SETTING, title=_title)


def _title(row: str) -> str:
    """
    >>> _title("torch:AdamW wd 0.1"), _title("adaxw@b2=1e-4")
    ('AdamW, weight decay 0.1', 'AdaX-W, b2 = 1e-4')
    """
    method, _, decay = row.partition(" wd ")
    return title(method) + (f", weight decay {decay}" if decay else "")


SETTING = "ResNet-50 from ImageNet, batch 10, crop 321, poly 0.9"


def _quarters(line: Line) -> str:
    quarters = zip(*([100 * point["metric"] for point in run.metrics] for run in line.good), strict=True)
    return " / ".join(f"{stats.mean(quarter):.1f}" for quarter in quarters)


def _losses(line: Line) -> str:
    """As `faster` is judged; the first quarter alone beside it."""
    early = [loss for run in line.good if (loss := early_loss(run)) is not None]
    if not early:
        return ""
    first = stats.mean([run.metrics[0]["train_loss"] for run in line.good])
    return f"{stats.mean(early):.3f} ({first:.3f})"


def speed(record: Mapping[str, Any]) -> str:
    """Milliseconds of a step, row by row."""
    rows = [
        (title(row), *(f"{ms:.2f}" for ms in (statistics.median(each), min(each), max(each))), len(each))
        for row, each in record["ms"].items()
    ]
    where = record["environment"]
    return table(("", "ms per step, median", "fastest round", "slowest round", "rounds"), rows) + (
        f"\n\nRows alternating, {record['steps']} steps per round, with the batch and crops of the study; "
        f"{where['gpu']}, torch "
        f"{where['torch']}. `python benchmarks/voc.py`."
    )


SECTIONS = {
    "voc-speed": recorded("voc/speed.json", speed, "*Not measured yet (`python benchmarks/voc.py`).*")
}
