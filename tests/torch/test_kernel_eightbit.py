"""8-bit state and 24-bit weights in the Triton kernel, interpreted on CPU tensors; and compiled without a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the kernel needs Triton")

import interpreter

if not interpreter.HERE:
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from adaxopt.torch import fused_cuda, kernel, kernel_numbers

    def test_table_in_the_interpreter():
        interpreter.run(__file__)

    F32, BF16 = torch.float32, torch.bfloat16
    VARIANTS = {
        "float32": (F32, {}),
        "24-bit weights": (BF16, {"ROUNDING": kernel_numbers.ROUNDINGS["24bit"]}),
        "running maximum, another power": (
            F32,
            {"MAXIMUM": True, "ROOTS": 0, "OUTER_ROOTS": 0, "CLIPPED": True},
        ),
        "no mean": (F32, {"MEAN": kernel_numbers.MEANS["none"], "WAKE": False}),
    }

    @pytest.mark.parametrize("name", VARIANTS)
    def test_the_kernel_compiles_for_a_gpu_that_need_not_be_there(name):
        """Types and layouts that the interpreter does not check; codes are read and written several at a time."""
        dtype, more = VARIANTS[name]
        types = (dtype, dtype, torch.int8, torch.uint8)
        block, warps, _, each = fused_cuda.tuning(dtype.itemsize)
        constants = {
            **{f"{letter}_TYPE": kernel_numbers.TYPES[t] for letter, t in zip("XGMV", types, strict=True)},
            "CODED": True,
            "MEAN": 0,
            "SECOND": True,
            "MAXIMUM": False,
            "WAKE": True,
            "ROOTS": 1,
            "OUTER_ROOTS": -1,
            "CLIPPED": False,
            "CAUTIOUS": False,
            "ROUNDING": 0,
            "KEYS": True,
            "BLOCK": block,
            "BLOCKS": 1,
            "EACH": each,
            **more,
        }
        kinds = {"numbers": "*fp32", "keys": "*i32", "owners": "*i16"}
        names = kernel.update.arg_names
        signature = {n: "constexpr" if n in constants else kinds.get(n, "*i64") for n in names}
        source = ASTSource(kernel.update, signature, {(names.index(n),): c for n, c in constants.items()})
        how = {"num_warps": warps, "enable_fp_fusion": True, "maxnreg": fused_cuda.REGISTERS}
        made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=how)
        text = made.asm["ptx"]
        assert "sqrt.approx.ftz.f32" in text
        assert "mul.rn.f32" in text
        wide = "v2.b32" if each == 8 else "b32"
        assert f"ld.global.{wide}" in text
        assert f"st.global.{wide}" in text

else:
    import eightbit_table as table

    @pytest.mark.parametrize("case", table.TABLE, ids=str)
    def test_a_step_is_the_rule(case):
        table.check(case)

    def test_codes_are_those_of_the_reference():
        table.check_codes()

    def test_the_foreach_form_writes_the_same():
        table.check_same_as_foreach()

    def test_a_frozen_memory_keeps_its_codes():
        table.check_frozen()

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy, of numbers that are not finite
    def test_a_coordinate_that_is_not_finite_is_lost_alone():
        table.check_lost()

    def test_gradients_are_unscaled_inside():
        table.check_scaled()
