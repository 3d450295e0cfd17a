"""Kernels compiled for a GPU that need not be there, and what the assembler says of them."""

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

POINTERS = {"numbers": "*fp32", "keys": "*i32", "owners": "*i16"}
OLD = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 3)
"""Triton 3.2 takes constants by name, and no others in the signature."""


def compiled(function: Any, constants: dict[str, Any], kinds: dict[str, str], warps: int, **more: Any) -> Any:
    """For compute capability 9.0; arguments that `kinds` does not name are tables of int64."""
    names = function.arg_names
    given = {name: value for name, value in constants.items() if name in names}
    signature = {n: "constexpr" if n in given else {**POINTERS, **kinds}.get(n, "*i64") for n in names}
    if OLD:
        source = ASTSource(function, {n: t for n, t in signature.items() if t != "constexpr"}, given)
    else:
        source = ASTSource(function, signature, {(names.index(n),): value for n, value in given.items()})
    options = {"num_warps": warps, "enable_fp_fusion": True, **more}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def rows(method: str, dtype: str, width: int) -> Any:
    """As `fused_rows.Share` asks for it, parameter and gradient in `dtype`, state in float32."""
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
        "G_SIZE": types[1].itemsize,
        "BLOCK": block,
        "EACH": 4,
        "MASKED": width % block != 0,
    }
    return compiled(each_row, constants, dict.fromkeys(("owner", "named", "values", "times"), "i64"), warps)


def update(x: str, g: str, state: str, rounding: str = "nearest", method: str = "adaxw", **more: Any) -> Any:
    """As `fused_cuda.Share` asks for it."""
    from adaxopt.torch import fused_cuda, kernel

    rule = METHODS[method].rule
    coded = state == "uint8"
    first = "int8" if coded else state
    types = [getattr(torch, name) for name in (x, g, first, state)]
    block, warps, _, each = fused_cuda.tuning(max(t.itemsize for t in types))
    constants: dict[str, Any] = {
        **{f"{name}_TYPE": kernel_numbers.TYPES[t] for name, t in zip("XGMV", types, strict=True)},
        "CODED": coded,
        "MEAN": kernel_numbers.MEANS[rule.mean],
        "SECOND": rule.memory is not None,
        "MAXIMUM": rule.maximum,
        "WAKE": True,
        "ROOTS": 1,
        "OUTER_ROOTS": -1,
        "CLIPPED": False,
        "CAUTIOUS": False,
        "SIGNED": not coded,
        "DECAYED": not coded,
        "ROUNDING": kernel_numbers.ROUNDINGS[rounding],
        "KEYS": True,
        "BLOCK": block,
        "BLOCKS": 1,
        "EACH": each,
        "AHEAD": fused_cuda.AHEAD if coded else 0,
        **more,
    }
    limit = {"maxnreg": fused_cuda.REGISTERS} if coded else {}
    return compiled(kernel.update, constants, {}, warps, **limit)


def advance(kind: str) -> Any:
    """The kernel that makes the numbers of a step, for a memory of this kind."""
    from adaxopt.torch import kernel

    flags = ("LR_AT", "B1_AT", "B2_AT", "SCALE_AT", "FOUND_AT", "MAXIMIZE")
    constants = {
        **dict.fromkeys(flags, True),
        "KIND": kernel_numbers.KINDS[kind],
        "MEAN": kernel_numbers.MEANS["average"],
        "DEBIAS": True,
        "FLOOR": True,
        "KEYS": True,
        "LANES": 64,
    }
    kinds = dict.fromkeys(("count", "mark", "ticket"), "i64")
    kinds |= dict.fromkeys(("lr_at", "b1_at", "b2_at", "scale_at", "found_at"), "*fp32")
    return compiled(kernel.advance, constants, kinds, 2)


TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def machine_code(code: Any) -> str:
    """The instructions that the GPU executes, as text."""
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "code.cubin"
        binary.write_bytes(code.asm["cubin"])
        call = [TOOLS / "cuobjdump", "-sass", binary]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout


def _said(code: Any) -> str:
    """The assembler's own words, by the newest one that came with Triton and knows this code."""
    for tool in ("ptxas-blackwell", "ptxas"):
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder) / "code.ptx"
            text.write_text(code.asm["ptx"])
            call = [TOOLS / tool, "-v", "--gpu-name=sm_90a", text, "-o", Path(folder) / "code.o"]
            words = subprocess.run(call, capture_output=True, text=True).stderr if call[0].exists() else ""
        if "registers" in words:
            return words
    raise RuntimeError(f"no assembler in {TOOLS} says how many registers it has used")


def registers(code: Any) -> int:
    return int(re.findall(r"Used (\d+) registers", _said(code))[0])


def spilled(code: Any) -> int:
    """Bytes of registers that had to be put into memory."""
    return sum(map(int, re.findall(r"(\d+) bytes spill", _said(code))))
