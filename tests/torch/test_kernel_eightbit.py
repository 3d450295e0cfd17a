"""8-bit state and 24-bit weights in the Triton kernel, interpreted on CPU tensors; and compiled without a GPU."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="the kernel needs Triton")

import interpreter

if not interpreter.HERE:

    def test_table_in_the_interpreter():
        interpreter.run(__file__)

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
