"""The rows' kernel compiled for a GPU that need not be there, and what the assembler says of it."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from adaxopt.torch import fused_rows, kernel_numbers
from adaxopt.zoo import METHODS


def build(method: str, dtype: str, width: int) -> Any:
    """As `RowBucket` asks for it, parameter and gradient in `dtype`, state in float32."""
    from adaxopt.torch.kernel_rows import each_row

    rule = METHODS[method].rule
    block, warps = fused_rows.cut(width)
    types = (getattr(torch, dtype),) * 2 + (torch.float32,) * 2
    constants: dict[str, Any] = {
        **dict.fromkeys(
            ("LR_AT", "B1_AT", "B2_AT", "SCALE_AT", "MAXIMIZE", "CLIPPED", "CAUTIOUS", "WAKE"), False
        ),
        **{f"{name}_TYPE": kernel_numbers.TYPES[t] for name, t in zip("XGMV", types, strict=True)},
        "KIND": kernel_numbers.KINDS[rule.memory.kind if rule.memory else None],
        "MEAN": kernel_numbers.MEANS[rule.mean],
        "DEBIAS": rule.debias,
        "FLOOR": rule.floor,
        "KEYS": dtype != "float32",
        "SECOND": True,
        "MAXIMUM": rule.maximum,
        "ROOTS": 1,
        "OUTER_ROOTS": -1,
        "ROUNDING": kernel_numbers.ROUNDINGS["nearest" if dtype == "float32" else "stochastic"],
        "WIDTH": width,
        "BLOCK": block,
        "EACH": 4,
        "MASKED": width % block != 0,
    }
    kinds = dict.fromkeys(("owner", "named", "values", "times"), "i64")
    kinds |= {"numbers": "*fp32", "keys": "*i32"}
    names = each_row.arg_names
    signature = {n: "constexpr" if n in constants else kinds.get(n, "*i64") for n in names}
    source = ASTSource(each_row, signature, {(names.index(n),): c for n, c in constants.items()})
    return triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "enable_fp_fusion": True}
    )


def _said(code: Any) -> str:
    """The assembler's own words, by the newest one that came with Triton and knows this code."""
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    for tool in ("ptxas-blackwell", "ptxas"):
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "code.ptx"
            text.write_text(code.asm["ptx"])
            call = [tools / tool, "-v", "--gpu-name=sm_90a", text, "-o", Path(folder) / "code.o"]
            words = subprocess.run(call, capture_output=True, text=True).stderr if call[0].exists() else ""
        if "registers" in words:
            return words
    raise RuntimeError(f"no assembler in {tools} says how many registers it has used")


def registers(code: Any) -> int:
    return int(re.findall(r"Used (\d+) registers", _said(code))[0])


def spilled(code: Any) -> int:
    """Bytes of registers that had to be put into memory."""
    return sum(map(int, re.findall(r"(\d+) bytes spill", _said(code))))
