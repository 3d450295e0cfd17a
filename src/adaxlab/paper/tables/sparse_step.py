"""The table of a step over sparse gradients on a GPU: a function of records/gpu_sparse.json."""

from __future__ import annotations

from typing import Any

from adaxlab.markdown import recorded, table
from adaxlab.paper.tables.gpu_step import since, spread

TORCHS, OURS, BEFORE = "torch SparseAdam", "AdaX, kernel", "AdaX, rows"


def steps(record: dict[str, Any]) -> str:
    """One row per case: torch's SparseAdam, AdaX, and their ratio, for gradients with duplicates and coalesced ones."""
    by_case: dict[str, dict[bool, dict[str, Any]]] = {}
    for case in record["cases"]:
        by_case.setdefault(case["case"], {})[case["coalesced"]] = case
    rows = []
    for name, pair in by_case.items():
        torchs, own = (pair[False]["rows"][key] for key in (TORCHS, OURS))
        times = [one["rows"][TORCHS]["ms"] / one["rows"][OURS]["ms"] for one in (pair[False], pair[True])]
        rows.append(
            (
                f"{name}, {pair[False]['names']:,} indices",
                own["n"],
                spread(torchs),
                spread(own),
                *(f"{ratio:.2f}" for ratio in times),
            )
        )
    without = [case["rows"][BEFORE]["ms"] / case["rows"][OURS]["ms"] for case in record["cases"]]
    environment = record["environment"]
    heads = ("sparse gradients", "n", f"{TORCHS}, ms (quartiles)", "AdaX, ms (quartiles)", "speedup")
    return (
        table((*heads, "speedup, already coalesced"), rows)
        + f"\n\nThe same device ({environment['gpu']}, torch {environment['torch']}), optimizers alternating, "
        f"{record['steps']} steps per round. Gradients hold random row indices with some duplicates; both optimizers "
        "sum "
        "duplicates (`coalesce`). The last column is for gradients that are already coalesced, as after clipping. "
        "Without "
        f"the kernel AdaX takes {min(without):.1f} to {max(without):.1f} times as long as with it. "
        f"`python benchmarks/sparse.py`.{since(record)}"
    )


section = recorded(
    "gpu_sparse.json", steps, "*Sparse gradients: not measured yet (`python benchmarks/sparse.py`).*"
)
