"""Stacks behind the executor's interface: what trains together, records, checkpoints, killed and resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cifar_sets import Float64, binary, make
from tiny import failing

from adaxlab import driver, reproduce, store
from adaxlab.errors import Busy, Interrupted, LabError, StoreError
from adaxlab.execute import stack
from adaxlab.paper.cifar10 import RUNTIME, TABLE2, TRACE, TUNING, adamw, adaxw, sgdm
from adaxlab.settings import Settings
from adaxlab.signals import Stop
from adaxlab.spec import digest
from adaxlab.stacked import stack as networks
from adaxlab.stacked.stack import Run, Stack, StackRecipe
from adaxlab.store import RunFolder
from adaxlab.study import Row

TIMES = {"seconds", "epoch_seconds"}
TWO = (sgdm(), adaxw())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("set")
    binary(place, make(train=20, test=10))
    return str(place)


def small(given, folder, rows=TWO, **changes):
    """A study of few images and epochs, a step an epoch."""
    options = {**given.task_options, "data": folder, **changes.pop("task_options", {})}
    short = dict(name="small", rows=rows, seeds=1, epochs=3, batch_size=20, baseline="")
    return replace(given, **{**short, **changes}, task_options=options).complete()


def content(records):
    """What runs came to, without times."""
    return {
        r.name: (
            [{k: v for k, v in line.items() if k not in TIMES} for line in r.metrics],
            {k: v for k, v in r.done.items() if k not in TIMES},
        )
        for r in records
    }


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    """The records of the small study, undisturbed."""
    return driver.carry_out(small(TABLE2, folder), tmp_path_factory.mktemp("whole"))


# -- what trains together -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "alone", "shape"),
    [(25, False, [6]), (4, False, [4, 2]), (5, False, [4, 2]), (1, False, [1] * 6), (25, True, [1] * 6)],
)
def test_stacks_are_whole_seeds(size, alone, shape, folder):
    given = small(TABLE2, folder, seeds=3)
    runs = [
        s for seed in zip(*(given.finals(row, row.lr()) for row in given.rows), strict=True) for s in seed
    ]
    cut = stack.stacks(runs, Settings(per_stack=size, alone=alone))
    assert [len(part) for part in cut] == shape
    assert sorted(digest(s) for part in cut for s in part) == sorted(map(digest, runs))
    found = [[(s["row"], s["seed"]) for s in part] for part in cut]
    if size == 4:  # an optimizer's runs side by side
        assert found[0] == [("sgdm", 0), ("sgdm", 1), ("adaxw", 0), ("adaxw", 1)]
    if alone:  # the rows in turn
        assert [part[0][0] for part in found] == ["sgdm", "adaxw"] * 3


def test_more_rows_than_fit_and_other_recipes(folder):
    rows = tuple(adaxw(f"adaxw lr {lr:g}", lr=lr) for lr in (1e-3, 2e-3, 3e-3))
    given, other = small(TABLE2, folder, rows, seeds=2), small(TABLE2, folder, rows[:1], epochs=4)
    runs = [s for row in rows for s in given.finals(row, row.lr())] + other.finals(rows[0], 1e-3)
    cut = stack.stacks(runs, Settings(per_stack=2))
    assert [[(s["seed"], s["epochs"]) for s in part] for part in cut] == [
        [(0, 3), (0, 3)], [(0, 3), (1, 3)], [(1, 3), (1, 3)], [(0, 4)],
    ]  # fmt: skip


# -- records --------------------------------------------------------------------------------------------------------


def test_a_record_is_what_the_stack_did(folder, tmp_path, monkeypatch):
    """The executor's numbers are those of a Stack that is driven by hand, two steps in float64."""
    monkeypatch.setattr(networks, "PlainNetwork", Float64)
    drop = {"name": "step", "milestones": (0.5,), "gamma": 0.1}
    given = small(TRACE, folder, (adamw(), adaxw()), epochs=2, schedule=drop)
    found = {r.row: r for r in driver.carry_out(given, tmp_path)}
    x, y, tx, ty = make(train=20, test=10)
    device = torch.device("cpu")
    both = [networks.Images.of(a, b, device) for a, b in ((x, y), (tx, ty))]
    runs = [Run(row.name, row.method, row.options, 0) for row in given.rows]
    by_hand = Stack(runs, *both, StackRecipe("resnet20", 2, (1,), 0.1, 20), Float64, trace=[True, True])
    for _ in range(2):
        by_hand.run_epoch()
    for i, run in enumerate(runs):
        record, curve = found[run.row], by_hand.history[i]
        assert (
            [line["epoch"] for line in record.metrics] == [line["step"] for line in record.metrics] == [1, 2]
        )
        for line, point in zip(record.metrics, curve, strict=True):
            assert {k: line[k] for k in point} == pytest.approx(point, abs=2e-6)
        assert record.done["metric"] == record.metrics[-1]["metric"] <= 1
        assert (record.done["steps"], record.done["together"], record.status) == (2, 2, "finished")
        assert record.done["trace"]["value"] == pytest.approx(by_hand.traces.of(i)["value"], rel=1e-4)
        assert record.env["precision"] == "fp32", "a CPU computes in float32 whatever is asked"
        assert record.env["data"] == record.spec["data"]


def test_a_run_that_diverges_has_no_metric_and_stops_no_other(folder, tmp_path):
    given = small(TABLE2, folder, (adaxw(), Row("wild", "torch:SGD", {"lr": 1e30})), epochs=2)
    found = {r.row: r for r in driver.carry_out(given, tmp_path)}
    assert (found["wild"].status, found["wild"].done["metric"]) == ("diverged", None)
    assert found["wild"].metrics[-1]["train_loss"] is None
    assert found["adaxw"].status == "finished"


def test_an_optimizer_that_fails_stops_no_other_and_the_next_command_resumes_it(folder, tmp_path):
    """The stack fails in its third epoch, with a checkpoint; its optimizers then train apart."""
    file, place = failing(tmp_path / "mine.py"), tmp_path / "runs"
    given = small(TABLE2, folder, (adaxw(), Row("bad", f"{file}:Bad", {"lr": 0.1}), sgdm()), seeds=2)
    how = Settings(checkpoint_seconds=0)
    made = driver.carry_out(given, place, how)
    found = {row: [r for r in made if r.row == row] for row in ("adaxw", "bad", "sgdm")}
    assert [r.status for row in ("adaxw", "sgdm") for r in found[row]] == ["finished"] * 4
    assert [r.done["together"] for r in found["adaxw"]] == [2, 2]
    assert {r.status for r in found["bad"]} == {"failed"}
    assert "ArithmeticError: the third step (at mine.py:" in found["bad"][0].error
    again = driver.carry_out(given, place, how)  # from the checkpoint, where the count of steps begins anew
    assert [r.status for r in again] == ["finished"] * 6
    assert not list(place.rglob("stack-*.pt"))


def test_tuning_is_judged_on_what_is_kept_from_training(folder, tmp_path):
    rows = (replace(sgdm(), rates=(0.1, 0.01)),)
    tuning = replace(TUNING.tuning, trials=2)
    given = small(TUNING, folder, rows, seeds=0, epochs=1, tuning=tuning, task_options={"holdout": 4})
    found = driver.carry_out(given, tmp_path)
    assert [(r.spec["purpose"], r.spec["seed"], r.spec["trial"]) for r in found] == [
        ("tune", 0, 0),
        ("tune", 0, 1),
    ]
    data = stack._data("cifar10", stack.canonical(given.task_options), "tune", torch.device("cpu"))
    assert (len(data.train), len(data.test), data.split) == (16, 4, "valid")
    final = stack._data("cifar10", stack.canonical({"data": folder}), "final", torch.device("cpu"))
    assert (len(final.train), len(final.test), final.split) == (20, 10, "test")


def test_runs_of_another_study_serve_this_one_unless_times_are_measured(folder, tmp_path):
    first = small(TABLE2, folder, epochs=1)
    driver.carry_out(first, tmp_path)
    again = driver.carry_out(replace(first, name="again"), tmp_path)
    assert {r.env["made_for"] for r in again} == {"small"}
    timed = replace(first, name="timed", share=False)
    assert [(r.done["together"], "made_for" in r.env) for r in driver.carry_out(timed, tmp_path)] == [
        (1, False)
    ] * 2
    assert not RUNTIME.share


# -- checkpoints ------------------------------------------------------------------------------------------------------


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


def test_killed_and_resumed_there_is_no_seam(whole, folder, tmp_path, monkeypatch):
    given = small(TABLE2, folder)
    with monkeypatch.context() as patch:
        killed_in(patch, 2)
        with pytest.raises(Killed):
            driver.carry_out(given, tmp_path, Settings(checkpoint_seconds=0))
    (kept,) = tmp_path.rglob("stack-*.pt")
    assert stack.read(kept)["state"]["epoch"] == 2
    epochs = []
    monkeypatch.setattr(
        Stack, "run_epoch", lambda self, run=Stack.run_epoch: (epochs.append(self.epoch), run(self))
    )
    assert content(driver.carry_out(given, tmp_path)) == content(whole)
    assert epochs == [2]
    assert not list(tmp_path.rglob("stack-*.pt"))


def test_killed_while_its_runs_are_written_it_makes_the_others(whole, folder, tmp_path, monkeypatch):
    given, fill, left = small(TABLE2, folder), RunFolder.fill, [None]

    def once(self, *what):
        if not left:
            raise Killed
        left.pop()
        fill(self, *what)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "fill", once)
        with pytest.raises(Killed):
            driver.carry_out(given, tmp_path, Settings(checkpoint_seconds=0))
    assert [r.status for r in store.load_runs(tmp_path)].count("finished") == 1
    assert content(driver.carry_out(given, tmp_path, Settings(per_stack=1))) == content(whole)
    assert not list(tmp_path.rglob("stack-*.pt"))


def test_asked_to_stop_it_leaves_a_checkpoint(whole, folder, tmp_path):
    given, stop = small(TABLE2, folder), Stop()

    class Watch(driver.Silent):
        def running(self, spec, step, total, metric):
            stop.signum = signal.SIGTERM

    with pytest.raises(Interrupted, match=r"stack-\w+\.pt at epoch 1 of 3"):
        driver.carry_out(given, tmp_path, watcher=Watch(), stop=stop)
    assert len(list(tmp_path.rglob("stack-*.pt"))) == 1
    assert content(driver.carry_out(given, tmp_path)) == content(whole)


@pytest.mark.parametrize("damage", [b"", b"damaged", None])
def test_a_checkpoint_that_cannot_be_used_is_named_and_left(damage, folder, tmp_path, monkeypatch):
    given = small(TABLE2, folder)
    with monkeypatch.context() as patch:
        killed_in(patch, 1)
        with pytest.raises(Killed):
            driver.carry_out(given, tmp_path, Settings(checkpoint_seconds=0))
    (kept,) = tmp_path.rglob("stack-*.pt")
    if damage is not None:
        kept.write_bytes(damage)
        message = r"stack-\w+\.pt: cannot resume from it \(\w+\); left untouched"
    else:
        saved = torch.load(kept, weights_only=True)
        torch.save({**saved, "env": {**saved["env"], "device": "cuda:0"}}, kept)
        message = r"was started on cuda:0; resume it with --device cuda:0"
    with pytest.raises((StoreError, LabError), match=message):
        driver.carry_out(given, tmp_path)
    assert kept.exists()


def test_runs_that_another_process_holds_are_left_to_it(folder, tmp_path):
    given = small(TABLE2, folder, epochs=1)
    runs = [s for row in given.rows for s in given.finals(row, row.lr())]
    with RunFolder(tmp_path, runs[1]).lock():
        assert list(stack.Executor()(runs, tmp_path, Settings(), driver.Silent(), Stop())) == []
        with pytest.raises(Busy):
            stack.train(runs, tmp_path, Settings(), driver.Silent(), Stop())
    assert len(list(stack.Executor()(runs, tmp_path, Settings(), driver.Silent(), Stop()))) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(schedule="cosine"), "schedule 'cosine', warmup 0: must be constant or step"),
        (dict(task_options={"augment": False}), "augment=False"),
    ],
)
def test_what_cannot_be_stacked_is_said(changes, message, folder, tmp_path):
    with pytest.raises(LabError, match=message):
        driver.carry_out(small(TABLE2, folder, **changes), tmp_path)
    with pytest.raises(LabError, match="task 'digits' cannot be stacked"):
        stack._data("digits", "{}", "final", torch.device("cpu"))


# -- the command ------------------------------------------------------------------------------------------------------


def test_one_command_from_nothing_to_a_table(folder, tmp_path, capsys):
    words = ["cifar10/table2", "--data", folder, "--out", str(tmp_path), "--device", "cpu", "--quiet"]
    words += ["--seeds", "1", "--epochs", "1"]
    assert reproduce.main([*words, "--seconds", "1e-9"]) == 3
    assert reproduce.main(words) == 0
    said = capsys.readouterr().out
    assert "| adaxw | 0.005 |" in said
    assert "With settings that differ from the study's own" in said
    assert reproduce.main([*words[:1], "--data", "/nowhere", *words[3:]]) == 2
    assert reproduce.main([*words, "--per-stack", "0"]) == 2


@pytest.mark.other_process
def test_the_command_is_killed_and_resumes(folder, tmp_path):
    """SIGTERM after the first checkpoint of a process of its own; torch and numpy are all that it needs."""
    code = (
        "import sys\n"
        "for name in ('tyro', 'rich', 'altair', 'PIL'): sys.modules[name] = None\n"
        "from adaxlab import reproduce\n"
        "sys.exit(reproduce.main())"
    )
    words = [
        "cifar10/runtime",
        "--data",
        folder,
        "--out",
        str(tmp_path / "a"),
        "--device",
        "cpu",
        "--seeds",
        "1",
    ]
    command = [sys.executable, "-c", code, *words, "--checkpoint-seconds", "0"]
    source = Path(__file__).parents[2] / "src"
    env = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(tmp_path.rglob("stack-*.pt")) and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.01)
    process.terminate()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "stopped" in said
    assert list(tmp_path.rglob("stack-*.pt"))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "| adaxw | 0.005 |" in done.stdout
    words[4] = str(tmp_path / "b")
    assert reproduce.main([*words, "--quiet"], lambda text: None) == 0
    a, b = (store.load_runs(tmp_path / place) for place in "ab")
    assert len(a) == 2
    assert content(a) == content(b)
