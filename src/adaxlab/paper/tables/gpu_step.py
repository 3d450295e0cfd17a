"""A step's time on a GPU: the records as one, and their part of docs/speed.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adaxlab import markdown
from adaxlab.paper.drawn import image

RECORD = "gpu_step.json"


def since(record: Mapping[str, Any]) -> str:
    """Whether the code has changed since the record was made; the record's note says how."""
    return (
        " The step has changed since this measurement, which was not repeated." if record.get("since") else ""
    )


def spread(row: dict[str, Any]) -> str:
    """Milliseconds, and between which quartiles."""
    return f"{row['ms']:.3f} ({row['low']:.3f} to {row['high']:.3f})"


# -- docs/speed.md --------------------------------------------------------------------------------------------------

OWN, TORCHS = "AdaXW fused", "torch AdamW fused"
RATIOS = (f"{OWN}, graph", f"{OWN}, frozen", f"{OWN}, bf16 state")
HEADS = ("", "n", "torch, ms (quartiles)", "AdaXW, ms (quartiles)", "speedup", "fresh gradients", "graph replay",
         "frozen memory (t = 150k)", "bf16 state")  # fmt: skip


def summary(record: Mapping[str, Any]) -> str:
    """How many times as fast as torch's fused AdamW a step of AdaXW is, over the models, with gradients that are new at
    every step, as `zero_grad()` gives by default."""
    found = [r["speedup"] for r in record["rows"] if r["row"] == OWN and r["gradients"] == "fresh"]
    return f"{min(found):.1f} to {max(found):.1f} times as fast"


def answer(root: Path) -> str:
    """The first sentences of docs/speed.md."""
    gpu, cpu = markdown.read(root, RECORD), markdown.read(root, "cpu_step.json")
    if gpu is None or cpu is None:
        return "*Not measured yet (`make bench-gpu`, `make bench`).*"
    default = {name: 1 / r["ratio"] for name, r in cpu["rows"].items() if r["against"] and "default" in name}
    small = [speedup for name, speedup in default.items() if "tensors of" in name]
    return (
        f"**Compared with torch's fused AdamW, a step of AdaXW is {summary(gpu)} on one {gpu['environment']['gpu']} "
        f"(fresh gradients); on a CPU it is {default['AdaXW default']:.2f} times as fast for ResNet-50's tensors, and "
        f"{min(small):.1f} to {max(small):.1f} times for small networks.**"
    )


def section(root: Path) -> str:
    record = markdown.read(root, RECORD)
    if record is None:
        return "*GPU: not measured yet (`make bench-gpu`).*"
    rows = []
    for model in dict.fromkeys(row["model"] for row in record["rows"]):
        fixed, fresh = (
            {r["row"]: r for r in record["rows"] if r["model"] == model and r["gradients"] == kind}
            for kind in ("fixed", "fresh")
        )
        own = fixed[OWN]
        size = f"{own['tensors']} tensor{'s' if own['tensors'] > 1 else ''}, {own['numbers'] / 1e6:.3g}M parameters"
        rows.append(
            (
                f"{model}: {size}",
                own["n"],
                spread(fixed[TORCHS]),
                spread(own),
                f"{own['speedup']:.2f}",
                f"{fresh[OWN]['speedup']:.2f}" if OWN in fresh else "",
                *(f"{fixed[name]['speedup']:.2f}" for name in RATIOS),
            )
        )
    environment = record["environment"]
    return (
        image("gpu-step", "Time of one optimizer step compared with torch's fused AdamW, per model", "images")
        + f"\n\n`optimizer.step()` on one {environment['gpu']}, torch {environment['torch']}, Triton "
        f"{environment['triton']}, float32 unless stated; medians of n alternating rounds. A speedup is the time "
        "of torch's fused AdamW divided by AdaXW's; under *graph replay*, both steps are replayed CUDA graphs. 256M is "
        f"one tensor of 2^28 parameters. `make bench-gpu`.{since(record)}\n\n"
        + markdown.table(HEADS, rows)
        + "\n\n"
        + _why(record)
        + _other_paths(record)
    )


def _why(record: Mapping[str, Any]) -> str:
    """Why the factors differ between models, and what the columns are."""
    rows = {(r["model"], r["row"]): r for r in record["rows"] if r["gradients"] == "fixed"}
    large = [rows["256M", name]["of_copy"] for name in (OWN, TORCHS)]
    replay = [rows["ResNet-50", f"{name}, graph"]["ms"] for name in (OWN, TORCHS)]
    return (
        "**Why the factors differ.** The steps of large models are bound by memory bandwidth: on 256M AdaXW reaches "
        f"{large[0]:.2f} of the copy bandwidth measured in the same run ({record['copy_bytes_per_s'] / 1e12:.2f} TB/s) "
        f"and torch {large[1]:.2f}. The steps of small models are bound by host time, the time of Python and of kernel "
        "launches, and torch needs more of it. A replayed CUDA graph needs almost no host time: ResNet-50's step "
        f"then takes {replay[0]:.2f} ms (AdaXW) and {replay[1]:.2f} ms (torch).\n\n"
        "**Columns.** *Speedup* is for gradients at fixed addresses, as with `zero_grad(set_to_none=False)`; under "
        "*fresh gradients* each step gets new gradient tensors, as after `zero_grad()`. *Frozen memory*: at step "
        "150,000 AdaX's v no longer changes in float32, and the kernel does not write it. *bf16 state*: m and v in "
        "bfloat16.\n\n"
    )


def _other_paths(record: Mapping[str, Any]) -> str:
    """What the table does not show: paths without the kernel, and torch's compiled step."""
    rows = {(r["model"], r["row"]): r["ms"] for r in record["rows"] if r["gradients"] == "fixed"}
    ratios = [
        rows[m, "torch AdamW foreach"] / ms for (m, name), ms in rows.items() if name == "AdaXW foreach"
    ]
    fewest, most = min(ratios), max(ratios)
    text = (
        f"Without the kernel, AdaXW's foreach path has a speedup of {fewest:.2f} to {most:.2f} over torch's. "
    )
    compiled, torchs = rows.get(("256M", "AdaXW compiled")), rows.get(("256M", "torch AdamW compiled"))
    if compiled and torchs:
        text += (
            f"With torch.compile, the 256M step takes {compiled:.2f} ms (AdaXW) and {torchs:.2f} ms (AdamW). "
        )
    return f"{text}[Record](../records/gpu_step.json)."
