"""Several CIFAR-10 studies in one call: common stacks, shared runs, traces, and checkpoints now and then."""

from __future__ import annotations

import itertools
import types
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cifar_sets import Float64, binary, make

from adaxopt.lab.cifar import drive, plan, shelf, studies
from adaxopt.lab.cifar.book import STUDIES, TABLE2, adamw, adaxw, sgdm
from adaxopt.lab.cifar.feed import Images
from adaxopt.lab.cifar.stack import Recipe, Stack
from adaxopt.lab.errors import StoreError

RECORDS = Path(__file__).parents[2] / "records"
CPU = torch.device("cpu")
SHORT = Recipe(epochs=2, milestones=(1,), batch=20)  # two steps
ONE = replace(TABLE2, name="one", rows=(sgdm("sgdm"), adamw()), seeds=2, recipe=SHORT)
TWO = replace(TABLE2, name="two", rows=(adaxw(), adamw("the same adamw", eps=1e-8)), seeds=1, recipe=SHORT)
TRACED = replace(ONE, name="traced", rows=(adamw(), adaxw()), seeds=1, trace=True)
HELD = replace(ONE, name="held", rows=(sgdm("sgdm"),), seeds=1, holdout=4)
ALONE = replace(ONE, name="alone", rows=(adamw(),), seeds=1, alone=True)


@pytest.fixture(scope="module")
def small():
    x, y, tx, ty = make(20, 10)
    train, test = Images.of(x, y, CPU), Images.of(tx, ty, CPU)
    return lambda holdout: studies.hold_out(train, holdout) if holdout else (train, test)


@pytest.fixture(scope="module")
def apart(small, tmp_path_factory):
    """Every study by itself: its lines by (row, seed)."""
    found = {}
    for study in (ONE, TWO, TRACED, HELD, ALONE):
        out = tmp_path_factory.mktemp(study.name)
        assert drive.carry_out([study], small, out, network=Float64)
        found[study.name] = by_run(out / f"{study.name}.jsonl")
    return found


def by_run(path):
    return {(line["row"], line["seed"]): line for line in drive.records(path)}


def same(line):
    """What must not depend on company: all but times and how many there were."""
    hidden = ("seconds", "epoch_seconds", "together", "same_run_as", "environment")
    return {key: value for key, value in line.items() if key not in hidden}


def close(given, other):
    """Equal but for numbers, which were rounded to six digits after the last sum."""
    if isinstance(given, dict):
        return given.keys() == other.keys() and all(close(given[key], other[key]) for key in given)
    if isinstance(given, list):
        return len(given) == len(other) and all(map(close, given, other))
    return given == pytest.approx(other, rel=1e-6, abs=2e-6) if isinstance(given, float) else given == other


def test_together_every_curve_is_the_one_it_has_apart(apart, small, tmp_path):
    together = [ONE, HELD, TRACED, ALONE, TWO]
    assert drive.carry_out(together, small, tmp_path, network=Float64)
    for study in together:
        found = by_run(tmp_path / f"{study.name}.jsonl")
        assert found.keys() == apart[study.name].keys()
        for key, line in found.items():
            other = apart[study.name][key]
            assert close(line["curve"], other["curve"]), key
            if "same_run_as" not in line:
                assert close(same(line), same(other)), key
                assert list(line) == list(other)
            assert ("trace" in line) == study.trace
    sizes = {name: {r["together"] for r in by_run(tmp_path / f"{name}.jsonl").values()} for name in apart}
    assert sizes == {"one": {5}, "two": {5}, "traced": {5}, "held": {1}, "alone": {1}}
    adopted = {
        (key, study.name): line.get("same_run_as")
        for study in together
        for key, line in by_run(tmp_path / f"{study.name}.jsonl").items()
    }
    assert {k: v for k, v in adopted.items() if v} == {
        (("adamw", 0), "one"): "traced: adamw",
        (("adaxw", 0), "two"): "traced: adaxw",
        (("the same adamw", 0), "two"): "traced: adamw",
    }
    assert list(tmp_path.glob("*.part")) == []


def test_the_trace_is_that_of_the_second_moment(apart, small):
    line = apart["traced"]["adaxw", 0]
    train, test = small(0)
    stack = Stack(
        [run for run in TRACED.runs() if run.row == "adaxw"], train, test, SHORT, make_network=Float64
    )
    for _ in range(2):
        stack.run_epoch()
    (state,) = stack.optimizers[0].state.values()
    mean = state["exp_avg_sq"].double().sqrt().sum().item() / 269_722
    assert line["trace"]["iteration"][-1] == 2
    assert line["trace"]["value"][-1] == pytest.approx(mean, rel=1e-5)


def jobs(*chosen):
    return [plan.Job(study, run) for study in chosen for run in study.runs()]


def test_the_rest_of_the_book_is_one_stack_of_thirty():
    """With table2's lines at hand: trace 6, beta1 9, beta2 6, zoo 9."""
    names = ("trace", "beta1", "beta2", "zoo")
    lines = drive.records(RECORDS / "cifar10" / "table2.jsonl")
    left = []
    for study in (STUDIES[name] for name in names):
        had = {(r["row"], r["seed"]) for r in drive.adopt(study, study.runs(), lines, 50_000, "bf16")}
        left += [plan.Job(study, run) for run in study.runs() if (run.row, run.seed) not in had]
    (group,) = plan.groups(plan.leaders(left))
    (stack,) = plan.stacks(group, 30)
    assert [sum(j.study.name == name for j in stack) for name in names] == [6, 9, 6, 9]
    assert [len(part) for part in plan.stacks(group, 20)] == [16, 14]
    assert [len(part) for part in plan.stacks(group, 15)] == [15, 15]


def test_every_row_of_the_book_trains_in_a_stack():
    """One step of each distinct row on two images; zoo's rows have their documented lr in the line."""
    rows = {
        (r.optimizer, str(r.options)): r
        for s in STUDIES.values()
        for r in s.rows
        if s.name in ("zoo", "decay")
    }
    assert all("lr" in row.options for s in STUDIES.values() for row in s.rows)
    study = replace(TABLE2, rows=tuple(rows.values()), seeds=1, recipe=Recipe(epochs=1, batch=2))
    x, y, _, _ = make(10, 10)
    train = Images.of(x[:2], y[:2], CPU)
    stack = Stack(study.runs(), train, train, study.recipe)
    before = stack.network.parameters.clone()
    stack.run_epoch()
    moved = (stack.network.parameters - before).abs().amax(1)
    still = [run.row for run, by in zip(stack.runs, moved, strict=True) if by == 0]
    assert still == ["adashift"]  # which waits until its window is full
    assert torch.isfinite(stack.network.parameters).all()


# -- checkpoints ------------------------------------------------------------------------------------------------------

LONG = replace(SHORT, epochs=3, milestones=(2,))
THREE, FOUR = (replace(s, recipe=LONG, seeds=1) for s in (ONE, TRACED))


class Killed(BaseException):
    pass


def killed_in(monkeypatch, epoch):
    """Training dies in the middle of that epoch, once the step has changed the parameters."""
    step = Stack._step

    def dying(self, count):
        step(self, count)
        if self.epoch == epoch:
            raise Killed

    monkeypatch.setattr(Stack, "_step", dying)


def test_killed_and_resumed_there_is_no_seam(small, tmp_path, monkeypatch):
    assert drive.carry_out([THREE, FOUR], small, tmp_path / "whole")
    out, said = tmp_path / "cut", []
    with monkeypatch.context() as patch:
        killed_in(patch, 2)
        with pytest.raises(Killed):
            drive.carry_out([THREE, FOUR], small, out, checkpoint_seconds=0.0)
    assert drive.carry_out([THREE, FOUR], small, out, tell=said.append)
    assert said[0] == "one+traced: 3 runs go on from epoch 2"
    for name in ("one", "traced"):
        whole, cut = (by_run(tmp_path / part / f"{name}.jsonl") for part in ("whole", "cut"))
        assert {k: same(v) for k, v in cut.items()} == {k: same(v) for k, v in whole.items()}
    assert shelf.names(out) == []


def test_checkpoints_come_at_their_time(small, tmp_path, monkeypatch):
    """Each look at the clock is a second, an epoch takes five of them; every 12 s is every third epoch."""
    ticks = itertools.count()
    monkeypatch.setattr(drive, "time", types.SimpleNamespace(monotonic=lambda: float(next(ticks))))
    at, save = [], shelf.save
    monkeypatch.setattr(shelf, "save", lambda name, state: (at.append(state["epoch"]), save(name, state)))
    study = replace(HELD, holdout=0, recipe=replace(SHORT, epochs=8))
    assert drive.carry_out([study], small, tmp_path, checkpoint_seconds=12)
    gaps = [b - a for a, b in itertools.pairwise(at)]
    assert at
    assert max(at) < 8
    assert set(gaps) <= {3}


def test_another_call_does_not_take_the_checkpoint(small, tmp_path):
    """Left by two studies, it is not one study's; of other settings neither; the same call still has it."""
    said = []
    assert not drive.carry_out([THREE, FOUR], small, tmp_path, seconds=0.0)
    (kept,) = shelf.names(tmp_path)
    assert kept.startswith("one+traced-")
    assert not drive.carry_out([FOUR], small, tmp_path, seconds=0.0, tell=said.append)
    assert any(f"2 runs start anew; {kept} are checkpoints of other stacks" in text for text in said)
    assert len(shelf.names(tmp_path)) == 2
    shorter = replace(FOUR, recipe=SHORT)
    assert plan.name(jobs(shorter), 20, "fp32") != plan.name(jobs(FOUR), 20, "fp32") in shelf.names(tmp_path)
    assert plan.name(jobs(FOUR), 20, "bf16") not in shelf.names(tmp_path)
    assert not drive.carry_out([THREE, FOUR], small, tmp_path, seconds=0.0, tell=said.append)
    assert "one+traced: 3 runs go on from epoch 0" in said


def test_a_renamed_checkpoint_is_refused(small, tmp_path):
    assert not drive.carry_out([THREE], small, tmp_path, seconds=0.0)
    (kept,) = shelf.names(tmp_path)
    wanted = plan.name(jobs(FOUR), 20, "fp32")
    for path in tmp_path.glob("*.part"):
        path.rename(tmp_path / path.name.replace(kept, wanted))
    with pytest.raises(StoreError, match="a checkpoint of other runs; move it away"):
        drive.carry_out([FOUR], small, tmp_path)


def test_several_by_name(tmp_path):
    """The public function: tables of all of them, and the folder; one name gives its file."""
    place, said = tmp_path / "set", []
    place.mkdir()
    binary(place, make(train=10, test=10))
    options = dict(data=str(place), device="cpu", seeds=1, epochs=1, tell=said.append)
    out = tmp_path / "out"
    assert studies.run(("beta2", "cifar10/beta1", "beta2"), str(out), **options) == out
    assert sum("| | n |" in text for text in said) == 2
    beta1, beta2 = (by_run(out / f"{name}.jsonl") for name in ("beta1", "beta2"))
    assert (len(beta1), len(beta2)) == (4, 3)
    assert beta1["adaxw b1 0.9", 0]["same_run_as"] == "beta2: adaxw b2 0.0001"
    assert beta1["adaxw b1 0", 0]["together"] == 6
    with pytest.raises(Exception, match="no study is named; known are cifar10/table2"):
        studies.run((), str(out), **options)
