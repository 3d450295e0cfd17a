"""The tables of docs/low-bit-state.md: the codes' steps, drift, speed, and the verdicts on 8-bit state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adaxlab.claim import NOT_RUN, link, words
from adaxlab.markdown import recorded, table
from adaxlab.paper import claims
from adaxlab.paper.gpt import BOTH
from adaxlab.paper.tables.exhibits import difference
from adaxlab.paper.tables.gpu_step import since, spread
from adaxopt.zoo import METHODS

Record = dict[str, Any]
SHARES = (1.0, 0.3, 0.1, 0.03, 0.01)


def steps(root: Path) -> str:
    from adaxopt.torch import codes

    head = ("", *("the group's largest" if s == 1 else f"{s:g} of it" for s in SHARES))
    kinds = {"m": codes.FIRST, "sqrt(v)": codes.SECOND}
    rows = [(name, *(f"{100 * codes.steps(s, kind):.1f}%" for s in SHARES)) for name, kind in kinds.items()]
    least = (8 * codes.size(codes.MOST[codes.SECOND])) ** -0.5
    return (
        table(head, rows)
        + f"\n\nCode 1 of v represents {least:.1g} to {2**0.5 * least:.1g} of the group's largest sqrt(v)."
    )


def drift(record: Record) -> str:
    rows = record["rows"]
    stored = list(dict.fromkeys(row["stored"] for row in rows))
    cells: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        key = (f"{row['steps']:,}", row["memory"], row["gradients"])
        cells.setdefault(key, {})[row["stored"]] = f"{100 * row['mean']:+.1f}% ({100 * row['rms']:.1f}%)"
    worst = {
        (name, memory): max(
            abs(row["mean"]) for row in rows if row["stored"] == name and row["memory"].startswith(memory)
        )
        for name in ("8-bit, stochastic", "FlashOptim")
        for memory in ("AdaX", "Adam,")
    }
    ours = max(worst["8-bit, stochastic", memory] for memory in ("AdaX", "Adam,"))
    growing, fading = (100 * worst["FlashOptim", memory] for memory in ("AdaX", "Adam,"))
    return (
        f"**With stochastic rounding sqrt(v) is off by at most {100 * ours:.1f}% on average.** FlashOptim rounds to "
        f"the nearest code: its sqrt(v) is off by up to {growing:.0f}% with AdaX's small gains, and {fading:.0f}% with "
        "Adam's.\n\n"
        "sqrt(v) relative to its float64 value: mean (root mean square) over "
        f"{record['coordinates']} coordinates of a simulation on a CPU. Gradients are Gaussian, with sizes that differ "
        "by about two orders of magnitude inside a group; *decaying*: falling by 10³ over the run; *spiking*: 100 "
        "times larger with probability 0.001. Columns: this package's codes, rounded stochastically and to the "
        "nearest; FlashOptim 0.1.4's (sqrt(v) in 255 equal steps, to the nearest); bfloat16. "
        "`python benchmarks/eightbit_drift.py`, [record](../records/eightbit_drift.json).\n\n"
        + table(
            ("steps", "memory", "gradients", *stored),
            [(*key, *(found.get(name, "") for name in stored)) for key, found in cells.items()],
        )
    )


def gpu(record: Record) -> str:
    rows = [row for row in record["rows"] if "registers" not in row]
    failed = [f"{row['row']} ({row['failed']})" for row in rows if "failed" in row]
    environment = record["environment"]
    return (
        table(
            ("model", "optimizer", "n", "ms (quartiles)", "floor, ms", "bytes of state"),
            [
                (
                    row["model"],
                    row["row"],
                    row["n"],
                    spread(row),
                    f"{row['floor_ms']:.3f}",
                    f"{row['state_bytes']:.2f}",
                )
                for row in rows
                if "failed" not in row
            ],
        )
        + f"\n\n`optimizer.step()` on one {environment['gpu']}, torch {environment['torch']}, Triton "
        f"{environment['triton']}; medians of n alternating rounds. Floor: the bytes that must be moved, at the "
        f"measured copy bandwidth ({record['copy_bytes_per_s'] / 1e12:.2f} TB/s). Bytes of state per parameter include "
        f"correction bits. `python benchmarks/eightbit.py`.{since(record)}"
        + (f" Failed: {'; '.join(failed)}." if failed else "")
        + _memory(record.get("memory", []))
    )


def _memory(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    cells = [
        (row["row"], f"{row['peak'] / 2**30:.2f}", f"{row['between'] / row['parameters']:.2f}")
        for row in rows
    ]
    return (
        "\n\n"
        + table(("training", "peak, GiB", "bytes per parameter between steps"), cells)
        + f"\n\nA transformer of {rows[0]['parameters'] / 1e9:.2f} billion parameters, four sequences of 1,024 tokens: "
        "peak memory that torch allocated in three steps, including activations."
    )


GPT = "transformer of 4 million parameters, bytes of enwik8"
QUALITY = (
    ("gpt.eight-bit", f"[{GPT}](gpt.md#gpt-eight-bit)", "8-bit state", "nats per byte"),
    ("cifar10.eight-bit", "[ResNet-20, CIFAR-10](cifar10.md#eight-bit)", "8-bit state", "points of accuracy"),
    ("gpt.24-bit", GPT, "8-bit state, 24-bit weights", "nats per byte"),
    ("gpt.bf16", GPT, "8-bit state, bf16 weights rounded stochastically", "nats per byte"),
)
"""(claims, task, what is compared with float32 state and weights, unit)"""


def quality(root: Path) -> str:
    """State and weights of fewer bits compared with float32: one line per study and method."""
    judged = {row["id"]: row for row in claims.committed(root / "records")}
    lines = []
    for part, task, what, unit in QUALITY:
        for method in BOTH:
            row = judged[id := f"{part}-{method}"]
            seen = (f"{difference(row)} {unit}", row["n"]) if row["verdict"] != NOT_RUN else ("", "")
            lines.append((what, task, METHODS[method].title, *seen, link(id, words(row))))
    head = ("", "task", "optimizer", "better than float32 by (95%)", "n", "the same within the margin")
    return table(head, lines)


NOT_SIMULATED = "*Drift of v: not simulated yet (`python benchmarks/eightbit_drift.py`).*"
NOT_MEASURED = "*Not measured yet (`python benchmarks/eightbit.py`).*"
SECTIONS = {
    "low-bit-quality": quality,
    "low-bit-steps": steps,
    "low-bit-drift": recorded("eightbit_drift.json", drift, NOT_SIMULATED),
    "low-bit-gpu": recorded("gpu_eightbit.json", gpu, NOT_MEASURED),
}
