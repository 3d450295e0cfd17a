"""Runs: what the loop computes, that it can stop anywhere, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from adaxlab import batches, checkpoint, loop, optimizers, randomness, schedule, spec, task
from adaxlab.errors import Busy, Interrupted, LabError, StoreError
from adaxlab.execute import process
from adaxlab.settings import Settings, choose_device
from adaxlab.signals import Stop, listening
from adaxlab.store import RunFolder

TINY = str(Path(__file__).with_name("tiny.py"))
TIMES = {"seconds", "step_seconds", "loop_seconds", "sessions"}


def spec_of(name="Tiny", **changes):
    given = dict(
        study="s", task=f"{TINY}:{name}", optimizer="adaxw", options={"lr": 0.02}, epochs=3, batch_size=16,
        seed=4, schedule={"name": "cosine", "warmup": 3},
    )  # fmt: skip
    return spec.make(**{**given, **changes})


def content(record):
    """Everything a run computed: all but times and how often it was resumed."""
    metrics = [{k: v for k, v in line.items() if k not in TIMES} for line in record.metrics]
    return metrics, {k: v for k, v in record.done.items() if k not in TIMES}


def plain_loop(given):
    """The run as a person would write it, from the specification alone."""
    made = task.load(given["task"])
    data = made.data()
    torch.manual_seed(given["seed"])
    model = made.model()
    optimizer = optimizers.build(given["optimizer"], model.parameters(), given["options"])
    x, y = data["train"]
    steps = -(-len(x) // given["batch_size"])
    factor = schedule.factor(given["schedule"], steps * given["epochs"])
    step, losses = 0, []
    for epoch in range(given["epochs"]):
        model.train()
        total = 0.0
        for rows in batches.order(len(x), given["seed"], epoch).split(given["batch_size"]):
            for group in optimizer.param_groups:
                group["lr"] = given["options"]["lr"] * factor(step)
            optimizer.zero_grad()
            loss, _ = made.loss(model, (x[rows], y[rows]))
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
            step += 1
        losses.append(total / len(x))
    model.eval()
    with torch.no_grad():
        loss, right = made.loss(model, data["test"])
    return model, losses, loss.item(), right.float().mean().item()


OWN_GENERATOR = ("own generator", "sampler's generator", "its sampler's generator")


@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "drawing", "dataset", *OWN_GENERATOR])
def test_a_sampler_is_told_the_epoch(kind, tmp_path):
    """Every epoch has an order of its own; a run that was cut goes on in the order of its epoch."""
    given = spec_of("TinySampler", task_options={"kind": kind})
    seen = task.load(given["task"]).loss.__globals__["SEEN"]
    seen.clear()
    whole = process.run(given, tmp_path / "a")
    epochs = [seen[i : i + 3] for i in (0, 3, 6)]
    assert all(sorted(row for batch in epoch for row in batch) == list(range(48)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    stop = Stop()

    def progress(step, total, metric):
        stop.signum = 15 if step >= 5 else None

    with pytest.raises(Interrupted):
        process.run(given, tmp_path / "b", Settings(checkpoint_seconds=0), progress, stop)
    assert content(process.run(given, tmp_path / "b")) == content(whole)
    assert seen[-1] == seen[8]
    if kind in OWN_GENERATOR:
        seen.clear()
        process.run({**given, "seed": 5}, tmp_path / "c")
        assert seen[:3] != epochs[0], "the seed has its own order"


def test_who_is_told_the_epoch_must_take_it_alone():
    class Odd(list):
        def set_epoch(self, epoch, rank):
            raise AssertionError

    with pytest.raises(
        LabError, match=r"Odd\.set_epoch\(epoch, rank\): .* set_epoch\(epoch\); change it, or give"
    ):
        batches.Batches(Odd([1]), torch.device("cpu"))


@pytest.mark.parametrize("optimizer", ["adaxw", "sgdm", "torch:AdamW"])
def test_the_loop_computes_what_a_plain_one_does(optimizer, tmp_path):
    given = spec_of(optimizer=optimizer)
    record = process.run(given, tmp_path)
    model, losses, loss, metric = plain_loop(given)
    assert record.done["model_sha256"] == loop.fingerprint(model)
    assert [line["train_loss"] for line in record.metrics] == losses
    assert record.done["metric"] == pytest.approx(metric)
    assert record.done["valid_loss"] == pytest.approx(loss, rel=1e-6)
    assert [line["step"] for line in record.metrics] == [6, 12, 18]
    assert record.done["best"] == max(line["metric"] for line in record.metrics)
    assert record.metrics[-1]["lr"] == pytest.approx(0.02 * schedule.factor(given["schedule"], 18)(17))


def test_a_run_is_a_function_of_its_specification(tmp_path):
    torch.manual_seed(99)
    before = torch.get_rng_state()
    first = process.run(spec_of(), tmp_path / "a")
    assert torch.equal(torch.get_rng_state(), before)  # given back
    torch.manual_seed(1)
    assert content(process.run(spec_of(), tmp_path / "b")) == content(first)
    other = process.run(spec_of(seed=5), tmp_path / "b")
    assert other.done["model_sha256"] != first.done["model_sha256"]


def test_a_finished_run_is_read_not_repeated(tmp_path):
    first = process.run(spec_of(), tmp_path)
    again = process.run(spec_of(), tmp_path)
    assert again == first
    assert sorted(p.name for p in first.path.iterdir()) == [
        ".lock", "done.json", "env.json", "metrics.jsonl", "spec.json",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["Tiny", "TinyDataset", "TinyLoader", "TinyLoss"])
@pytest.mark.parametrize(
    ("at", "between"), [(1, False), (6, False), (6, True), (9, False), (12, True), (17, False)]
)
def test_stopped_anywhere_it_ends_with_the_same_bits(name, at, between, tmp_path):
    """At a step, or `between` two epochs: after the evaluation that follows it."""
    whole = process.run(spec_of(name), tmp_path / "whole")
    stop, looks = Stop(), []

    def ask(step, total, metric):
        looks.append(step)
        if looks.count(at) > between:
            stop.signum = signal.SIGTERM

    every_step = Settings(checkpoint_seconds=0)
    with pytest.raises(Interrupted) as caught:
        process.run(spec_of(name), tmp_path / "parts", every_step, ask, stop)
    assert caught.value.exit_code == 143
    torch.manual_seed(123)  # whatever happens in between
    resumed = process.run(spec_of(name), tmp_path / "parts")
    assert resumed.done["sessions"] == 2
    assert content(resumed) == content(whole)


COUNTS = """from collections import deque
import numpy as np
import torch


class Counts(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, lr)
        self.t = self._t = 0
        self.slow, self.buffer, self.last = [torch.zeros(1)], None, deque()
        self.draws, self.chance = torch.Generator().manual_seed(0), np.random.default_rng(0)

    def step(self, closure=None):
        {}
        for group in self.param_groups:
            group["lr"] *= 0.9**t
        return super().step(closure)
"""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("self.t += 1; t = self.t", "it keeps t outside self.state and param_groups"),
        ("self._t += 1; t = self._t", "it keeps _t outside self.state and param_groups"),
        (
            "self.slow[0].data += 1; t = self.slow[0].item()",
            "it keeps slow outside self.state and param_groups",
        ),
        (
            "self.buffer = np.zeros(1) if self.buffer is None else self.buffer + 1; t = self.buffer[0]",
            "it keeps buffer outside self.state and param_groups",
        ),
        (
            "self.last.append(len(self.last)); t = len(self.last)",
            "it keeps last outside self.state and param_groups",
        ),
        (
            "t = torch.rand(1, generator=self.draws).item()",
            "it keeps draws outside self.state and param_groups",
        ),
        ("t = self.chance.random()", "it keeps chance outside self.state and param_groups"),
        (
            "s = self.state[self.param_groups[0]['params'][0]]; t = s['t'] = s.get('t', np.float64(0)) + 1",
            "its state has objects other than tensors and Python's numbers",
        ),
    ],
)
@pytest.mark.parametrize("split", ["", "+adamw"])
def test_an_optimizer_that_a_checkpoint_would_not_restore_has_none(split, line, why, tmp_path, capsys):
    """A run that is interrupted then starts again, and ends with the same bits."""
    file = tmp_path / f"counts{len(line)}{split}.py"
    file.write_text(COUNTS.format(line))
    given = spec_of(optimizer=f"{file}:Counts{split}")
    whole = process.run(given, tmp_path / "whole")
    stop = Stop()

    def ask(step, total, metric):
        stop.signum = signal.SIGINT if step >= 8 else 0

    with pytest.raises(Interrupted):
        process.run(given, tmp_path / "parts", Settings(checkpoint_seconds=0), ask, stop)
    assert not RunFolder(tmp_path / "parts", given).checkpoint.exists()
    assert capsys.readouterr().err.count(f"have no checkpoints, because {why}; one that is interrupted") == 1
    assert content(process.run(given, tmp_path / "parts")) == content(whole)


OWN = """import adaxopt, torch


class Own(torch.optim.SGD):
    def __init__(self, params, lr=0.1):
        super().__init__(params, torch.tensor(lr), momentum=0.9, fused=True)
        self.all, self.k = [p for group in self.param_groups for p in group["params"]], 3
        self.me = [self.k]
        self.me.append(self.me)


class Mine(adaxopt.AdaXW):
    pass
"""


@pytest.mark.parametrize(
    "name",
    ["adaxw", "torch:AdamW", "torch:SGD", "torch:NAdam", "torch:Adafactor", "torch:SGD+adaxw"]
    + ["own:Own", "own:Mine", "own:Mine+adamw"]
    + ["muon+adamw"] * hasattr(torch.optim, "Muon")
    + ["schedulefree:AdamWScheduleFree"] * (find_spec("schedulefree") is not None),
)
def test_an_optimizer_that_a_checkpoint_restores_has_no_obstacle(name, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    name = name.replace("own", str(tmp_path / "own.py"))
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
    made = optimizers.build(name, model.parameters(), {"lr": 0.01}, model)
    before = checkpoint.kept_outside(made)
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
        for group in made.param_groups:
            loop.set_lr(group, 0.5 * group["lr"])
        made.step()
    assert checkpoint.obstacle(made, before) == ""


def test_metrics_written_after_the_checkpoint_are_cut_off(tmp_path):
    whole = process.run(spec_of(), tmp_path / "whole")
    stop = Stop()

    def ask(step, total, metric):
        stop.signum = signal.SIGINT if step >= 8 else 0

    with pytest.raises(Interrupted):
        process.run(spec_of(), tmp_path / "parts", Settings(checkpoint_seconds=0), ask, stop)
    folder = RunFolder(tmp_path / "parts", spec_of())
    with open(folder.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 12, "epoch": 2, "metric": 0.1}\n{"step": 18, "ep')
    assert content(process.run(spec_of(), tmp_path / "parts")) == content(whole)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_run_that_resumes(signum, tmp_path):
    whole = process.run(spec_of(), tmp_path / "whole")

    def ask(step, total, metric):
        if step == 9:
            os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    with pytest.raises(Interrupted) as caught:
        process.run(spec_of(), tmp_path / "parts", Settings(checkpoint_seconds=0), ask)
    assert signal.getsignal(signum) is before
    assert caught.value.exit_code == 128 + signum
    assert "at step" in str(caught.value)
    assert content(process.run(spec_of(), tmp_path / "parts")) == content(whole)


def test_a_second_signal_acts_as_usual():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has none
    try:
        with listening() as stop:
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.signum == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_two_processes_never_write_one_run(tmp_path):
    with (
        RunFolder(tmp_path, spec_of()).lock(),
        pytest.raises(Busy, match="another process is writing this run"),
    ):
        process.run(spec_of(), tmp_path)
    assert process.run(spec_of(), tmp_path).done["sessions"] == 1


def test_diverged_is_a_result(tmp_path):
    record = process.run(spec_of("Explodes", optimizer="sgdm", options={"lr": 1.0}), tmp_path)
    assert record.done["status"] == "diverged"
    assert record.done["metric"] is None
    assert record.done["steps"] < 18  # stopped early
    json.dumps(record.done, allow_nan=False)


def test_a_loss_that_is_a_number_is_never_divergence(tmp_path):
    """However low (a likelihood of many numbers) or high (an outlier)."""
    dense = process.run(spec_of("Density", optimizer="adamw", options={"lr": 0.3}, epochs=20), tmp_path)
    assert (dense.done["status"], dense.done["metric"] < -1000) == ("finished", True)
    spike = process.run(spec_of("Spike"), tmp_path)
    assert spike.done["status"] == "finished"
    assert process.run(spec_of("Infinite"), tmp_path).done["status"] == "diverged"
    assert spike.done["metric"] == process.run(spec_of("Tiny"), tmp_path).done["metric"]


def test_a_damaged_checkpoint_is_reported_and_left(tmp_path):
    stop = Stop()
    stop.signum = signal.SIGTERM
    with pytest.raises(Interrupted):
        process.run(spec_of(), tmp_path, stop=stop)
    checkpoint = RunFolder(tmp_path, spec_of()).checkpoint
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    damaged = checkpoint.read_bytes()
    with pytest.raises(StoreError, match=r"checkpoint\.pt: cannot resume from it") as caught:
        process.run(spec_of(), tmp_path)
    assert "\n" not in str(caught.value)
    assert checkpoint.read_bytes() == damaged
    checkpoint.unlink()
    assert process.run(spec_of(), tmp_path).done["status"] == "finished"


def test_tuning_holds_out_a_fifth_and_final_runs_see_all(tmp_path):
    tune = process.run(spec_of(purpose="tune", trial=0), tmp_path)
    final = process.run(spec_of(), tmp_path)
    assert (tune.done["split"], final.done["split"]) == ("valid", "test")
    assert (tune.done["steps"], final.done["steps"]) == (3 * 5, 3 * 6)  # 72 and 90 rows in batches of 16
    keep, held = batches.holdout(90)
    assert (len(keep), len(held)) == (72, 18)
    assert not set(keep.tolist()) & set(held.tolist())


def test_a_run_resumes_on_the_type_of_device_it_was_started_on(tmp_path):
    stop = Stop()
    stop.signum = signal.SIGTERM
    with pytest.raises(Interrupted):
        process.run(spec_of(), tmp_path, stop=stop)
    env = RunFolder(tmp_path, spec_of()).path / "env.json"
    env.write_text(json.dumps({**json.loads(env.read_text()), "device": "cuda:0"}))
    with pytest.raises(LabError, match="was started on cuda:0; resume with --device cuda:0"):
        process.run(spec_of(), tmp_path)


def test_environment_is_recorded(tmp_path):
    env = process.run(spec_of(), tmp_path).env
    assert env["versions"]["torch"] == torch.__version__
    assert env["threads"] == 1
    assert set(env) >= {"time", "versions", "hardware", "commit", "device"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_devices():
    assert choose_device("auto").type == "cpu"
    for name in ("cuda", "gpu"):
        with pytest.raises(LabError, match="device="):
            choose_device(name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", ["Tiny", "TinyLoader"])
def test_on_a_gpu_it_trains_and_resumes(name, tmp_path):
    stop = Stop()

    def ask(step, total, metric):
        stop.signum = signal.SIGTERM if step >= 8 else 0

    given = spec_of(name)
    with pytest.raises(Interrupted):
        process.run(given, tmp_path / "parts", Settings("cuda", checkpoint_seconds=0), ask, stop)
    parts = process.run(given, tmp_path / "parts", Settings("cuda"))
    whole = process.run(given, tmp_path / "whole", Settings("cuda"))
    assert parts.done["sessions"] == 2
    assert [line["train_loss"] for line in parts.metrics] == pytest.approx(
        [line["train_loss"] for line in whole.metrics], rel=1e-4
    )
    assert 0 < whole.done["step_seconds"] < whole.done["seconds"]
    assert "cuda" in whole.env["device"]


def test_the_error_of_a_run_is_not_hidden_by_generators_that_cannot_be_restored(monkeypatch):
    """As after a failure of the GPU, which every later call to it repeats."""

    def broken(saved, device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def fail():
        with randomness.controlled(3, torch.device("cpu"), 1):
            raise LabError("the run's own")

    monkeypatch.setattr(randomness, "restore", broken)
    with pytest.raises(LabError, match="the run's own"):
        fail()
