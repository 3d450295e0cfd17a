"""8-bit state and 24-bit weights in the Triton kernel, interpreted on CPU tensors; and compiled without a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the kernel needs Triton")

import interpreter

if not interpreter.HERE:
    import compiled

    def test_table_in_the_interpreter():
        interpreter.run(__file__)

    @pytest.mark.parametrize(
        ("dtype", "rounding", "wide"), [("float32", "nearest", "b32"), ("bfloat16", "24bit", "v2.b32")]
    )
    def test_codes_are_read_and_written_several_at_a_time(dtype, rounding, wide):
        text = compiled.update(dtype, dtype, "uint8", rounding).asm["ptx"]
        assert "sqrt.approx.ftz.f32" in text
        assert f"ld.global.{wide}" in text
        assert f"st.global.{wide}" in text

else:
    import eightbit_table as table

    @pytest.mark.parametrize("case", table.TABLE, ids=str)
    def test_a_step_is_the_rule(case):
        table.check(case)

    def test_codes_are_those_of_the_reference():
        table.check_codes()

    def test_every_code_is_read_and_written_exactly():
        table.check_every_code()

    def test_the_foreach_form_writes_the_same():
        table.check_same_as_foreach()

    def test_a_frozen_memory_keeps_its_codes():
        table.check_frozen()

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy, of numbers that are not finite
    def test_a_coordinate_that_is_not_finite_is_lost_alone():
        table.check_lost()

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy, of the square that is not used
    def test_a_large_gradient_late_in_training_is_not_lost():
        table.check_large()

    def test_gradients_are_unscaled_inside():
        table.check_scaled()
