"""The CIFAR-10 page: `adax report records/cifar10 --out cifar10.html`, from the committed records alone."""

from __future__ import annotations

from pathlib import Path

from adaxlab.claim import words
from adaxlab.errors import LabError
from adaxlab.paper import cifar10_runs as committed
from adaxlab.paper.cifar10_added_claims import CLAIMS
from adaxlab.paper.claims import judge_files

LEAD = (
    "The paper's CIFAR-10 experiments, reproduced. SGDM, AdamW and AMSGrad(W) are PyTorch's implementations; AdaX-W is "
    "this library's. Accuracy is that of the last epoch. Rules were written before the runs, except where the note "
    "of a "
    "claim says otherwise."
)


def write(records: Path, out: Path) -> Path:
    """One self-contained HTML page: every study that has records, and the claims."""
    from adaxlab.paper.cifar10_report import load
    from adaxlab.report import write_report

    runs = load(records)
    if not runs:
        raise LabError(f"{records / 'cifar10'}: no CIFAR-10 records; give the repository's records/ folder")
    missing = committed.not_run(records)
    lead = LEAD + (f" Not run yet: {', '.join(missing)}." if missing else "")
    rows = [{**row, "text": row["claim"], "verdict": words(row)} for row in judge_files(CLAIMS, records)]
    return write_report(runs, out, title="CIFAR-10", claims=rows, lead=lead)
