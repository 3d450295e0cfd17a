"""The rows' kernel, interpreted on CPU tensors: against the rule and `row_step`, through the optimizer."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="the kernel needs Triton")

import compiled
import interpreter

if not interpreter.HERE:

    def test_table_in_the_interpreter():
        interpreter.run(__file__)

    @pytest.mark.parametrize(
        ("method", "dtype", "width", "wide_reads"),
        [("adaxw", "float32", 512, 8), ("amsgrad", "float32", 300, 0), ("adam", "bfloat16", 768, 4)],
    )
    def test_it_compiles_for_a_gpu_that_is_not_here(method, dtype, width, wide_reads):
        """For compute capability 9.0: no register is spilled, and whole blocks are read 16 bytes at a time."""
        code = compiled.rows(method, dtype, width)
        if not compiled.OLD:
            assert code.asm["ptx"].count("ld.global.v4") == wide_reads
        assert compiled.spilled(code) == 0

else:
    import plans_table
    import rows_table as table
    from kernel_table import BF16, F16, F32, F64, Case
    from rows_table import buckets, coo, served, walk

    from adaxopt import AdamW, AdaXW, Fading, create
    from adaxopt.torch import fused_rows, launch
    from runner import check_late_coordinate

    @pytest.fixture
    def launches(monkeypatch):
        """(kernel, programs) of every launch."""
        seen = []
        plainly = launch.Launch.plainly

        def spy(self, programs, *arguments):
            seen.append((self.function.fn.__name__, programs))
            plainly(self, programs, *arguments)

        monkeypatch.setattr(launch.Launch, "plainly", spy)
        return seen

    @pytest.mark.parametrize("case", table.TABLE, ids=str)
    def test_one_step_is_the_rule(case):
        table.check(case)

    @pytest.mark.parametrize("shape", [(9,), (9, 3), (9, 2, 20), (9, 300), (9, 768), (9, 1100)])
    @pytest.mark.parametrize(
        "case", [Case("adaxw"), Case("amsgradw", x=BF16, state=BF16, rounding="stochastic")]
    )
    def test_rows_of_any_width(shape, case):
        table.check(case, shape)

    @pytest.mark.parametrize("method", ["adaxw", "adam", "amsgradw", "nosadam"])
    def test_rows_that_are_named_now_and_then(method):
        table.check_walks_agree(method=method)

    @pytest.mark.parametrize("name", ["step", "row_step", "exp_avg"])
    def test_freed_state_is_an_error(name):
        p = torch.nn.Parameter(torch.ones(9, 256))
        optimizer = AdaXW([p])
        for _ in range(2):
            p.grad = coo([1, 3], torch.ones(2, 256), p.shape)
            optimizer.step()
        optimizer.state[p][name].untyped_storage().resize_(0)
        with pytest.raises(RuntimeError, match="freed"):
            optimizer.step()

    def test_rows_of_complex_numbers_are_not_the_kernels_even_after_a_restart():
        p = torch.nn.Parameter(torch.ones(6, 3, dtype=torch.complex64))
        optimizer = AdaXW([p])
        for _ in range(2):
            p.grad = coo([0, 2], torch.ones(2, 3, dtype=torch.complex64), p.shape)
            optimizer.step()
            optimizer.load_state_dict(optimizer.state_dict())
        assert optimizer.state[p]["row_step"].tolist() == [2, 0, 2, 0, 0, 0]

    def test_a_first_gradient_that_names_nothing_leaves_the_rows_to_the_kernel(launches):
        p = torch.nn.Parameter(torch.ones(6, 3))
        optimizer = AdaXW([p])
        for rows in ([], [0, 2]):
            p.grad = coo(rows, torch.ones(len(rows), 3), p.shape)
            optimizer.step()
        assert served(optimizer)
        assert launches == [("advance", 1), ("each_row", 2)]
        assert optimizer.state[p]["step"].item() == 2
        assert optimizer.state[p]["row_step"].tolist() == [1, 0, 1, 0, 0, 0]

    def test_decay_in_the_gradient_and_the_other_direction():
        table.check_walks_agree(method="adax", weight_decay=0.1, maximize=True)

    KNOWN = (
        "nothing",
        "swap_one_mean",
        "drop_one",
        "forget",
        "another_group",
    )  # others show what these would
    CHANGES = [f for f in plans_table.CHANGES if f.__name__ not in KNOWN]

    @pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
    def test_whatever_happens_between_steps(change):
        table.check_walks_agree(change=change, steps=4)

    def test_steps_of_one_parameter_follow_its_state():
        """As `step_in_backward` takes them: nobody looks at all the state first."""
        ends = []
        for on in (True, False):
            p = torch.nn.Parameter(torch.linspace(-1, 1, 8).reshape(4, 2))
            optimizer = AdaXW([p], lr=0.1)
            with table.switched(on):
                for t in range(4):
                    p.grad = coo([1, 3], torch.full((2, 2), 1.0 + t), (4, 2))
                    if t == 2:
                        plans_table.replace_entry([p], optimizer)
                    optimizer.step_parameter(p)
            assert bool(served(optimizer)) == on
            ends.append((p.detach(), *optimizer.state[p].values()))
        for a, b in zip(*ends, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)

    def test_launches_of_a_step(launches):
        """`advance` once for the parameters of a width, then one launch for each gradient, a program for each row."""
        params = [torch.nn.Parameter(torch.ones(s)) for s in ((8, 16), (8, 16), (8,))]
        optimizer = AdaXW(params)
        for t in range(3):
            for i, p in enumerate(params):
                p.grad = coo([1, 4, 1], torch.ones(3, *p.shape[1:]), p.shape) if i != 1 or t else None
            launches.clear()
            optimizer.step()
        assert launches == [("advance", 1), ("each_row", 2), ("each_row", 2), ("advance", 1), ("each_row", 2)]
        assert optimizer.state[params[1]]["row_step"].tolist() == [0, 2, 0, 0, 2, 0, 0, 0]
        assert [optimizer.state[p]["step"].item() for p in params] == [3, 2, 3]

    def test_tables_are_kept_for_parameters_that_take_turns():
        params = [torch.nn.Parameter(torch.ones(4, 2)) for _ in range(2)]
        optimizer = AdaXW(params)
        kept = []
        for t in range(6):
            params[t % 2].grad = coo([1], torch.ones(1, 2), (4, 2))
            params[1 - t % 2].grad = None
            optimizer.step()
            kept.append(buckets(optimizer))
        assert len(served(optimizer)) == 2
        assert kept[3][0] is kept[4][0] is kept[5][0]
        assert [optimizer.state[p]["row_step"].tolist() for p in params] == [[0, 3, 0, 0]] * 2

    @pytest.mark.parametrize("on", [True, False])
    def test_the_kernel_is_on_and_can_be_switched_off(launches, monkeypatch, on):
        assert fused_rows.ROWS
        monkeypatch.setattr(fused_rows, "ROWS", on)
        p = torch.nn.Parameter(torch.ones(4, 2))
        optimizer = AdaXW([p])
        p.grad = coo([1], torch.ones(1, 2), (4, 2))
        optimizer.step()
        assert len(served(optimizer)) == on

    @pytest.mark.parametrize("options", [{"foreach": True}, {"foreach": False}, {"fused": False}])
    def test_another_path_that_is_asked_for_is_taken(options):
        _, optimizer = walk(True, steps=2, **options)
        assert not served(optimizer)

    def test_an_overflow_stops_rows_and_their_time():
        p = torch.nn.Parameter(torch.ones(4, 2))
        optimizer = create("adam", [p], lr=0.5)
        optimizer.grad_scale = torch.tensor(4.0)
        ends = []
        for found in (1.0, 0.0, 1.0):
            optimizer.found_inf = torch.tensor(found)
            p.grad = coo([1, 3], torch.full((2, 2), float("inf") if found else 8.0), (4, 2))
            optimizer.step()
            entry = optimizer.state[p]
            ends.append([p.detach().clone(), *(t.clone() for t in entry.values())])
        assert served(optimizer)
        assert torch.equal(ends[0][0], torch.ones(4, 2))
        assert all(torch.equal(a, b) for a, b in zip(ends[1], ends[2], strict=True))
        assert entry["row_step"].tolist() == [0, 1, 0, 1]
        assert entry["step"] == 1
        torch.testing.assert_close(entry["exp_avg"][1], torch.full((2,), 0.2))
        torch.testing.assert_close(p[1], torch.full((2,), 0.5))

    def unserved():
        yield "two dimensions", torch.ones(4, 3, 2), torch.ones(4, 3, 2).to_sparse(2)
        yield (
            "complex",
            torch.ones(4, 2, dtype=torch.complex64),
            coo([1], torch.ones(1, 2), (4, 2), torch.complex64),
        )
        yield "transposed", torch.ones(2, 4).t(), coo([1], torch.ones(1, 2), (4, 2))
        yield (
            "names nothing",
            torch.ones(4, 2),
            coo(torch.zeros(1, 0, dtype=torch.int64), torch.ones(0, 2), (4, 2)),
        )
        yield "too wide", torch.ones(2, (1 << 16) + 1), torch.ones(2, (1 << 16) + 1).to_sparse(1)

    @pytest.mark.parametrize(
        ("start", "g"), [(x, g) for _, x, g in unserved()], ids=[n for n, *_ in unserved()]
    )
    def test_what_is_not_served_is_stepped_as_before(start, g, monkeypatch):
        ends = []
        for on in (True, False):
            monkeypatch.setattr(fused_rows, "ROWS", on)
            p = torch.nn.Parameter(start.clone(memory_format=torch.preserve_format))
            optimizer = AdaXW([p], lr=0.1)
            for _ in range(2):
                p.grad = g
                optimizer.step()
            empty = g.is_sparse and g._nnz() == 0  # known to the kernel from the start, for later gradients
            assert bool(served(optimizer)) == (on and empty)
            ends.append((p, optimizer.state[p]))
        assert torch.equal(ends[0][0], ends[1][0])
        assert all(torch.equal(ends[0][1][k], ends[1][1][k]) for k in ends[1][1])
        assert ends[0][1]["step"] == 2

    @pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this torch refuses such a gradient")
    def test_a_gradient_of_another_dtype():
        ends = []
        for kernel in (True, False):
            with table.switched(kernel):
                p = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(4, 3).half())
                optimizer = AdaXW([p], lr=0.1)
                for dtype in (F16, F32, F16, BF16):
                    p.grad = None
                    p.grad_dtype = None  # whatever comes
                    p.grad = coo([1, 3], torch.ones(2, 3), (4, 3), dtype)
                    optimizer.step()
            ends.append((p, optimizer.state[p]["exp_avg"], optimizer.state[p]["row_step"]))
        for a, b in zip(*ends, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-3 if a.dtype == F16 else 1e-6, atol=0)
        assert ends[0][2].tolist() == [0, 4, 0, 4]

    def seen_otherwise(optimizer, p):
        p.data = torch.as_strided(p.data, (4, 2), (1, 4))

    def transposed(optimizer, p):
        p.data = p.data.t().contiguous().t()

    def times_in_32_bits(optimizer, p):
        optimizer.state[p]["row_step"] = optimizer.state[p]["row_step"].float()

    def times_with_gaps(optimizer, p):
        gaps = torch.zeros(8, dtype=F64)[::2]
        optimizer.state[p]["row_step"] = gaps.copy_(optimizer.state[p]["row_step"])

    def another_dtype_in_the_same_memory(optimizer, p):
        mean = optimizer.state[p]["exp_avg"]
        low = torch.empty(0, dtype=BF16).set_(mean.untyped_storage(), 0, (4, 2))
        optimizer.state[p]["exp_avg"] = low.copy_(mean.clone())

    def grown(optimizer, p):
        p.data = torch.cat([p.data, torch.ones(2, 2)])
        entry = optimizer.state[p]
        for key in ("exp_avg", "exp_avg_sq", "row_step"):
            entry[key] = torch.cat([entry[key], torch.zeros_like(entry[key][:2])])

    CHANGES = (
        seen_otherwise,
        transposed,
        times_in_32_bits,
        times_with_gaps,
        another_dtype_in_the_same_memory,
        grown,
    )

    @pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
    def test_what_changes_between_steps_is_seen(change):
        """In the middle, by the kernel and by torch operations."""
        ends = []
        for kernel in (True, False):
            with table.switched(kernel):
                p = torch.nn.Parameter(torch.linspace(-1, 1, 8).reshape(4, 2))
                optimizer = AdaXW([p], lr=0.1, seed=3)
                for t in range(5):
                    if t == 2:
                        p.grad = None
                        change(optimizer, p)
                    p.grad = coo([1, 3], torch.arange(4.0).reshape(2, 2) + 1 + t, tuple(p.shape))
                    optimizer.step()
                    assert t != 1 or bool(served(optimizer)) == kernel
            entry = optimizer.state[p]
            ends.append([p.detach(), *(entry[key].double() for key in sorted(entry))])
        for a, b in zip(*ends, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2 if "dtype" in change.__name__ else 1e-5, atol=1e-6)

    @pytest.mark.parametrize("dtype", [F16, BF16])
    def test_names_that_come_twice_are_summed_before_they_are_rounded(dtype):
        """Where a gradient is still to be unscaled: in float16 the sum would overflow."""
        means = []
        for kernel in (True, False):
            with table.switched(kernel):
                p = torch.nn.Parameter(torch.ones(4, 2, dtype=dtype))
                optimizer = AdaXW([p], lr=0.1)
                for _ in range(2):
                    optimizer.grad_scale, optimizer.found_inf = torch.tensor(1024.0), torch.tensor(0.0)
                    p.grad = coo([1] * 3, torch.tensor([[40000.0] * 2] * 2 + [[40.0] * 2]), (4, 2), dtype)
                    optimizer.step()
            means.append(optimizer.state[p]["exp_avg"][1])
        total = 2 * float(torch.tensor(40000.0, dtype=dtype)) + 40
        torch.testing.assert_close(means[0], torch.full((2,), 0.19 * total / 1024), rtol=1e-5, atol=0)
        torch.testing.assert_close(means[0], means[1])

    def test_values_and_rows_at_odd_addresses():
        """A parameter or a gradient that begins in the middle of sixteen bytes is read by smaller pieces, or copied."""
        ends = []
        for shift in (0, 1):
            start, values = torch.zeros(4 * 128 + shift)[shift:], torch.zeros(2 * 128 + shift)[shift:]
            start.copy_(torch.linspace(-1, 1, 4 * 128))
            values.copy_(torch.linspace(1, 2, 2 * 128))
            p = torch.nn.Parameter(start.view(4, 128))
            optimizer = AdaXW([p], lr=0.1)
            for _ in range(2):
                p.grad = coo([0, 2], values.view(2, 128), (4, 128))._coalesced_(True)
                assert p.grad._values().data_ptr() % 16 == p.data_ptr() % 16 == 4 * shift
                assert fused_rows.named(p.grad, False)[1].data_ptr() % 16 == 0
                optimizer.step()
            assert [b.options["MASKED"] for b in buckets(optimizer)] == [bool(shift)]
            ends.append(p.detach())
        assert torch.equal(*ends)
        assert ends[0][0, 0] < -1

    @pytest.mark.parametrize("row", [4, 2**36, 2**62, 2**63 - 1])
    def test_a_row_outside_the_tensor_is_left_alone(row):
        """torch lets a gradient claim such rows unless it is asked to check. 2^62 rows of 2 overflow 64 bits."""
        base = torch.ones(8, 2, dtype=F64)
        p = torch.nn.Parameter(base[2:6])
        optimizer = AdaXW([p], lr=0.1)
        p.grad = torch.sparse_coo_tensor(
            [[-1, 1, row]], torch.ones(3, 2, dtype=F64), (4, 2), check_invariants=False
        )._coalesced_(True)
        optimizer.step()
        assert served(optimizer)
        assert base[[0, 1, 2, 4, 5, 6, 7]].eq(1).all()
        assert base[3].ne(1).all()
        assert optimizer.state[p]["row_step"].tolist() == [0, 1, 0, 0]

    @pytest.mark.parametrize("late", [4, 9])
    def test_a_memory_that_freezes_guards_late_coordinates(launches, late):
        x = torch.nn.Parameter(torch.zeros(2, 1))
        memory = Fading(0.9).freeze(5)
        optimizer = AdamW([x], lr=1.0, weight_decay=0.0, eps=1e-15, memory=memory)
        check_late_coordinate(x, optimizer, late, sparse=True, rel=1e-5)
        assert {name for name, _ in launches} >= {"each_row"}
