"""The kernel's host side, interpreted on CPU tensors: slots, launches, what a graph keeps, what is refused."""

from __future__ import annotations

import gc
import re
import weakref

import pytest
import torch

pytest.importorskip("triton", reason="the kernel needs Triton")

import interpreter

if not interpreter.HERE:

    def test_table_in_the_interpreter():
        interpreter.run(__file__)

else:
    import kernel_table as table
    from kernel_table import Case, simple

    from adaxopt import create
    from adaxopt.torch import fused_cuda, launch

    def test_a_kept_slot_is_never_written_again_and_still_works():
        """What a graph replays: the same slot and mark, after many other steps have gone through the table."""
        from adaxopt.torch import kernel_numbers as kernel

        plan, params, states, hyper = simple([(40,)])
        g = torch.ones(40)
        plan.step(hyper, grads=[g])
        bucket = plan.buckets[0]
        bucket.slots.keep()
        slot, mark = bucket.slots.current, bucket.slots.mark
        words = bucket.slots.tensor(slot)[1:].clone()
        for i in range(40):
            plan.step({**hyper, "lr": 1e-3 * (i + 2)}, grads=[torch.zeros(40)])
        assert torch.equal(bucket.slots.tensor(slot)[1:], words)
        first, second = next(iter(bucket.launches.values()))
        before = params[0].clone()
        first.plainly(1, bucket.slots.tensor(slot), 1, mark, 7, *[bucket.rows] * 5)
        second.plainly(bucket.programs)
        assert states[0]["step"] == 42
        assert not torch.equal(params[0], before)
        assert bucket.table[kernel.HEAD.value].item() == g.data_ptr()
        now = params[0].clone()
        plan.step(
            {**hyper, "lr": 1e-3 * 41}, grads=[torch.zeros(40)]
        )  # the eager table comes back by its mark
        assert not torch.equal(params[0], now)

    def test_slots_in_flight_are_not_taken():
        plan, _, _, _ = simple([(4,)])
        slots = plan.buckets[0].slots
        for i in range(launch.SLOTS):
            slots.tell((float(i),) * 15, [1], capturing=True)
            slots.use()  # a launch that never runs: no answer comes
        taken = slots.current
        slots.tell((0.5,) * 15, [1], capturing=True)
        assert slots.current >= launch.SLOTS  # a new slab, because under capture there is no waiting
        assert len(slots.ring) == 2 * launch.SLOTS
        assert taken < launch.SLOTS

    @pytest.mark.parametrize(
        ("p", "state", "says"),
        [
            (torch.ones(0), {}, "empty"),
            (torch.ones(2, dtype=torch.int32), {}, "torch.int32"),
            (torch.ones(4, 4)[:, ::2], {}, "leave gaps"),
            (torch.ones(1).expand(4), {}, "leave gaps or overlap"),
            (torch.ones(4, 3), {"exp_avg": torch.ones(3, 4).t()}, "exp_avg has another memory layout"),
            (torch.ones(4), {"exp_avg": torch.ones(4, dtype=torch.int32)}, "exp_avg is torch.int32"),
            (torch.ones(4), {"exp_avg": torch.ones(4, device="meta")}, "exp_avg is torch.float32 on meta"),
            (
                torch.ones(4),
                {"exp_avg_sq": torch.ones(4), "max_exp_avg_sq": torch.ones(4).half()},
                "is torch.float16",
            ),
            (torch.ones(4), {"step": torch.zeros(())}, "must be torch.float64"),
            (torch.ones(4, 3).t(), {"exp_avg": torch.ones(4, 3).t()}, None),
        ],
    )
    def test_unsupported_says_why(p, state, says):
        got = fused_cuda.unsuitable(p, state, None)
        assert (got is None) if says is None else says in got

    def test_a_window_is_refused():
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = create("adashift", [p], fused=True)
        p.grad = torch.ones(3)
        with pytest.raises(ValueError, match="fused=True: the CUDA kernel keeps no window"):
            optimizer.step()

    @pytest.mark.parametrize(
        ("method", "name"), [("nosadam", "betas[1]"), ("adaxw", "weight_decay"), ("adaxw", "eps")]
    )
    def test_what_the_host_tells_must_be_a_float_under_capture(monkeypatch, method, name):
        plan, params, states, hyper = table.build(
            Case(method, tensor_betas=name == "betas[1]", sizes=((5,),))
        )
        if name in hyper:
            hyper[name] = torch.tensor(1e-3)
        monkeypatch.setattr(fused_cuda, "_capturing", lambda device: True)
        for _ in range(2):
            with pytest.raises(
                RuntimeError,
                match=rf"{re.escape(name)} as a tensor under CUDA graph capture: .* give a float",
            ):
                plan.step(hyper, grads=[torch.ones_like(p) for p in params])
        assert states[0]["step"] == 0

    @pytest.mark.parametrize("decay", ["decoupled", "fully_decoupled"])
    def test_an_lr_on_the_device_is_never_read_by_the_host(decay, monkeypatch):
        """Nor the first lr, which fully decoupled decay is measured against: capture would fail, a step would wait."""
        ends = []
        for options in ({}, {"foreach": True}):
            p, lr = torch.nn.Parameter(torch.linspace(-1, 1, 40)), torch.tensor(1e-2)
            optimizer = create("adaxw", [p], lr=lr, weight_decay=0.5, decay=decay, capturable=True, **options)
            p.grad = torch.ones(40)
            with monkeypatch.context() as watch:
                if not options:
                    watch.setattr(torch.Tensor, "__float__", lambda t: pytest.fail("a tensor was read"))
                for i in range(4):
                    lr.fill_(1e-2 / (1 + i))
                    optimizer.step()
            ends.append((p, optimizer))
        (plan,) = ends[0][1]._plans.values()
        assert plan.shares[0][0].slots.mark == 1  # told once: nothing was new
        torch.testing.assert_close(ends[0][0], ends[1][0], rtol=2e-6, atol=2e-7)

    def test_a_scalar_is_brought_beside_the_bucket():
        scale = torch.tensor(2.0)
        assert fused_cuda._beside(scale, torch.device("cpu")) is scale
        assert fused_cuda._beside(None, torch.device("cpu")) is None
        assert fused_cuda._beside(scale, torch.device("meta")).device.type == "meta"

    def test_a_dropped_ring_is_held_until_its_last_launch_has_answered(monkeypatch):
        monkeypatch.setattr(launch, "_dropped", {})
        device = torch.device("cpu")

        def drop(answered):
            slots = launch.Slots(14, 1, device)
            slots.tell((0.0,) * 13, [1], capturing=False)
            slot, _, _, ticket = slots.use()
            if answered:
                slots.tensor(slot)[0] = ticket

        drop(answered=True)
        assert not launch._dropped
        drop(answered=False)
        ((ring, last, _),) = launch._dropped.values()
        launch.Slots(14, 1, device)
        assert len(launch._dropped) == 1
        ring[last.index(1)][0][0] = 1  # the device's answer
        launch.Slots(14, 1, device)
        assert not launch._dropped
        for _ in range(3 * launch.DROPPED):  # launches that failed
            drop(answered=False)
        assert len(launch._dropped) <= launch.DROPPED + 1

    def test_a_collection_in_the_middle_of_a_sweep_drops_another_ring(monkeypatch):
        monkeypatch.setattr(launch, "_dropped", {})

        def unanswered():
            slots = launch.Slots(14, 1, torch.device("cpu"))
            slots.tell((0.0,) * 13, [1], capturing=False)
            slots.use()
            return slots

        thresholds = gc.get_threshold()
        gc.collect(), gc.disable()
        try:
            for allocations in range(30):  # after so many more, the collector looks
                launch._dropped.clear()
                for _ in range(15):
                    unanswered()
                cycle = [unanswered()]
                cycle.append(cycle)
                del cycle
                held = [(i, -i) for i in range(3000)]  # so that the next pairs are made, none being at hand
                gc.set_threshold(gc.get_count()[0] + allocations)
                gc.enable()
                launch._sweep()
                gc.disable(), gc.collect()
                assert len(launch._dropped) == 16
                del held
        finally:
            gc.set_threshold(*thresholds)
            gc.enable()

    def test_a_capture_that_was_refused_leaves_no_state(monkeypatch):
        """Made under capture, it would lie in the graph's memory; what was there before stays."""
        params = [torch.nn.Parameter(torch.ones(n)) for n in (3, 40)]
        optimizer = create("adaxw", params, fused=True)
        params[0].grad = torch.ones(3)
        optimizer.step()
        params[1].grad = torch.ones(40)
        monkeypatch.setattr(fused_cuda, "_capturing", lambda device: True)
        with pytest.raises(RuntimeError, match="take a few steps before capturing"):
            optimizer.step()
        assert set(optimizer.state) == {params[0]}
        monkeypatch.undo()
        optimizer.step()
        assert [optimizer.state[p]["step"].item() for p in params] == [2, 1]

    def test_the_allocator_is_told_of_every_stream_that_reads_the_tables(monkeypatch):
        """When a step's stream is another than the last one's, and not of a graph's, which keeps them anyway."""
        plan, params, _, hyper = simple([(40,), (3,)], capturable=True)
        (bucket,) = plan.buckets
        tables = {t.data_ptr() for t in (bucket.rows, bucket.table, bucket.numbers, bucket.keys)}
        tables |= {t.data_ptr() for t in (bucket.owners, bucket.agreeing)}
        now, told = {"stream": 0, "capturing": False}, []
        monkeypatch.setattr(fused_cuda, "_captured", {})
        monkeypatch.setattr(fused_cuda, "_capturing", lambda device: now["capturing"])
        monkeypatch.setattr(fused_cuda.Share, "_stream", lambda bucket: now["stream"])
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: now["stream"])
        monkeypatch.setattr(
            torch.Tensor, "record_stream", lambda t, stream: told.append((t.data_ptr(), stream))
        )
        for stream, capturing, expected in (
            (0, False, False),
            (7, False, True),
            (7, False, False),
            (9, True, False),
            (7, False, False),
            (9, False, True),
            (0, False, True),
        ):
            now.update(stream=stream, capturing=capturing)
            told.clear()
            plan.step(hyper, grads=[torch.ones_like(p) for p in params])
            assert set(told) == {(t, stream) for t in tables if expected}, (stream, capturing)

    def test_a_graph_keeps_tables_and_slots_but_no_parameter(monkeypatch):
        monkeypatch.setattr(fused_cuda, "_captured", {})
        plan, params, states, hyper = simple([(40,), (3,)], capturable=True)
        plan.step(hyper, grads=[torch.ones_like(p) for p in params])
        monkeypatch.setattr(fused_cuda, "_capturing", lambda device: True)
        for _ in range(2):
            plan.step(hyper, grads=[torch.ones_like(p) for p in params])
        bucket = plan.buckets[0]
        read = [
            weakref.ref(t) for t in (bucket.rows, bucket.table, bucket.numbers, bucket.owners, bucket.slots)
        ]
        model = [weakref.ref(t) for t in (*params, *(t for s in states for t in s.values()), bucket, plan)]
        del plan, bucket, params, states
        gc.collect()
        assert [r() for r in model] == [None] * len(model)
        assert all(r() is not None for r in read)
        assert len(fused_cuda._captured) == 1

    @pytest.mark.parametrize("failure", [TypeError("takes 20 arguments"), RuntimeError("invalid argument")])
    def test_a_launch_that_fails_at_first_goes_the_plain_way_ever_after(failure):
        plan, params, states, hyper = simple([(40,)])
        want, others, _, _ = simple([(40,)])
        grads = [torch.ones(40)]
        plan.step(hyper, grads=grads), want.step(hyper, grads=grads)
        calls = []

        def fail(*arguments):
            calls.append(arguments)
            raise failure

        pair = next(iter(plan.buckets[0].launches.values()))
        for one in pair:
            one.run, one.head = fail, ()
        for _ in range(2):
            plan.step(hyper, grads=grads), want.step(hyper, grads=grads)
        assert len(calls) == 2  # each of them once
        assert states[0]["step"] == 3
        assert torch.equal(params[0], others[0])
        pair[0].run, pair[0].proven = fail, True
        with pytest.raises(type(failure), match=str(failure)):
            plan.step(hyper, grads=grads)

    def test_tables_do_not_depend_on_the_default_device():
        (p,), (q,) = ([torch.nn.Parameter(torch.ones(40))] for _ in range(2))
        usual, other = create("adaxw", [p], lr=0.1), create("adaxw", [q], lr=0.1)
        p.grad, q.grad = torch.ones(40), torch.ones(40)
        usual.step()
        with torch.device("meta"):
            other.step()
        assert torch.equal(p, q)
