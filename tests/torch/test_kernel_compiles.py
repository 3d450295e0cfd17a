"""The kernels compile for a GPU that is not here: the interpreter accepts what a compiler may not."""

import re

import pytest

pytest.importorskip("triton", reason="the kernel needs Triton")

import compiled
import interpreter

if not interpreter.HERE:

    @pytest.mark.parametrize(
        ("x", "g", "state", "rounding", "more"),
        [
            ("float32", "float32", "float32", "nearest", {}),
            ("float32", "float32", "bfloat16", "nearest", {"CLIPPED": True, "CAUTIOUS": True}),
            ("bfloat16", "bfloat16", "float32", "kahan", {}),
            ("float32", "float32", "uint8", "nearest", {}),
            ("float32", "bfloat16", "uint8", "nearest", {"method": "amsgradw"}),
            ("float32", "float32", "uint8", "nearest", {"ROOTS": 3, "OUTER_ROOTS": 0}),
            ("float16", "float16", "uint8", "stochastic", {"method": "rmsprop", "WAKE": False}),
            ("bfloat16", "bfloat16", "uint8", "24bit", {}),
        ],
    )
    def test_a_step(x, g, state, rounding, more):
        assert len(compiled.update(x, g, state, rounding, **more).asm["cubin"]) > 1000

    @pytest.mark.parametrize("kind", ["growing", "fading", "power", "log_time"])
    def test_the_numbers_of_a_step(kind):
        assert len(compiled.advance(kind).asm["cubin"]) > 1000

    @pytest.mark.parametrize(("dtype", "rounding"), [("float32", "nearest"), ("bfloat16", "24bit")])
    def test_the_assembler_keeps_every_code(dtype, rounding):
        """8 elements of a thread, m and v, in whole blocks and in those at the end of a tensor: each is scaled to its
        code. ptxas 12.8 left out half of these products where they were not `mul.rn`."""
        text = compiled.machine_code(compiled.update(dtype, dtype, "uint8", rounding))
        assert len(re.findall(r"FMUL\S* .*1\.17549435\d*e-38", text)) == 2 * 2 * 8
        assert len(re.findall(r"HADD2\.F32", text)) == 2 * 2 * 8  # and read from it
