"""The CIFAR-10 page: `python -m adaxopt.lab.cifar.page --out cifar10.html`, from the committed records alone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from adaxopt.lab.cifar import claims, drive, runs, tables
from adaxopt.lab.cifar.book import STUDIES
from adaxopt.lab.errors import LabError

LEAD = (
    "The paper's CIFAR-10 experiments, run again. SGDM, AdamW and AMSGrad(W) are PyTorch's, AdaX-W is this library's. "
    "Accuracy is that of the last epoch; rules were written before the runs, but where a claim says that it was asked "
    "for after."
)


def write(records: Path, out: Path) -> Path:
    """One self-contained HTML page: every study that has records, and the claims."""
    from adaxopt.lab.report import write_report

    found = [r for name in STUDIES for r in drive.records(records / "cifar10" / f"{name}.jsonl")]
    if not found:
        raise LabError(f"{records / 'cifar10'}: no CIFAR-10 records; give the repository's records/ folder")
    missing = tables.not_run(records)
    lead = LEAD + (f" Not run yet: {', '.join(missing)}." if missing else "")
    rows = [
        {**row, "text": row["claim"], "verdict": "not run" if row["n"] == 0 else row["verdict"]}
        for row in claims.all_claims(records)
    ]
    return write_report(runs.as_runs(found), out, title="CIFAR-10", claims=rows, lead=lead)


def main(arguments: list[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write the CIFAR-10 page from the records.")
    parser.add_argument("--records", type=Path, default=Path("records"))
    parser.add_argument("--out", type=Path, default=Path("cifar10.html"))
    options = parser.parse_args(arguments)
    try:
        write(options.records, options.out)
    except LabError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
