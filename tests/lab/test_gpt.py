"""The task and the studies of the transformer, end to end."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from adaxlab import driver, optimizer_options, records, schedule, spec, study, task, variants
from adaxlab.data import enwik8
from adaxlab.errors import Interrupted, LabError
from adaxlab.execute import process
from adaxlab.paper import gpt
from adaxlab.paper.gpt import GPT
from adaxlab.paper.tables import language as tables
from adaxlab.paper.tables.study import table
from adaxlab.settings import Settings
from adaxlab.signals import Stop
from adaxlab.summary import summarise
from adaxlab.tasks.gpt import Gpt, RandomWindows

SIZES = {"layers": 2, "width": 32, "heads": 2, "inner": 48, "context": 24}
TINY = {**SIZES, "steps": 6, "batch": 4, "eval_bytes": 300}
MUON = pytest.param(
    gpt.MUON,
    marks=pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon came with torch 2.9"),
)


@pytest.fixture
def book(tmp_path):
    """A file of 6,000 bytes: words with a rhythm that a small model can learn."""
    rng = np.random.default_rng(0)
    words = ["the cat ", "sat on ", "the mat. ", "a dog ", "ran home. "]
    text = "".join(words[i] for i in rng.integers(0, 5, 900)).encode()[:6000]
    (tmp_path / "book.txt").write_bytes(text)
    return tmp_path / "book.txt"


# -- task -------------------------------------------------------------------------------------------------------------


def asked(book, optimizer="adaxw", **more):
    given = dict(study="s", task="gpt", optimizer=optimizer, batch_size=4)
    places = {**TINY, "data": str(book)}
    rest = {"options": {"lr": 3e-3}, "task_options": places, "epochs": 3, "seed": 1, **more}
    return spec.make(**given, schedule={"name": "cosine", "warmup": 0.1, "final": 0.1}, **rest)


@pytest.mark.parametrize("optimizer", ["adamw", "adaxw", "nosadam", "sgdm", MUON])
def test_a_few_steps_from_end_to_end(optimizer, book, tmp_path):
    record = process.run(asked(book, optimizer), tmp_path / "runs")
    assert record.done["steps"] == 18
    assert record.done["metric_name"] == "nats per byte"
    assert record.metrics[-1]["metric"] < record.metrics[0]["metric"] < math.log(256) + 0.1


@pytest.mark.parametrize("row", gpt.BF16.rows, ids=lambda row: row.name)
def test_rows_with_bf16_weights_train_and_resume_with_the_same_bits(row, book, tmp_path):
    options = {
        "lr": 3e-3,
        **{key: row.options[key] for key in ("state_dtype", "rounding") if key in row.options},
    }
    places = {**TINY, **row.task_options, "data": str(book)}
    made = task.load("gpt", places).model()
    assert {p.dtype for p in made.parameters() if p.dim() == 2} == {
        torch.float32 if row.name.endswith("float32") else torch.bfloat16
    }
    assert {p.dtype for p in made.parameters() if p.dim() != 2} == {torch.float32}

    def ask():
        return asked(book, row.method, options=options, task_options=places)

    whole = process.run(ask(), tmp_path / "a")
    assert whole.metrics[-1]["metric"] < whole.metrics[0]["metric"] < math.log(256) + 0.1
    stop = Stop()
    with pytest.raises(Interrupted):
        process.run(
            ask(),
            tmp_path / "b",
            Settings(checkpoint_seconds=0),
            lambda *_: setattr(stop, "signum", 15),
            stop,
        )
    assert process.run(ask(), tmp_path / "b").done["model_sha256"] == whole.done["model_sha256"]


def test_residuals_are_float32_with_bf16_weights(book):
    """The loss is that of float32 weights with the same values, up to the rounding of products."""
    losses = []
    for weights in ("fp32", "bf16"):
        torch.manual_seed(0)
        made = task.load("gpt", {**TINY, "data": str(book), "weights": weights})
        model = made.model()
        if weights == "fp32":
            for p in model.parameters():
                p.data = p.data.bfloat16().float() if p.dim() == 2 else p.data
        seen = []
        model.norm.register_forward_pre_hook(lambda _, args, seen=seen: seen.append(args[0].dtype))
        with torch.no_grad():
            losses.append(float(made.loss(model, made.data()["test"])[0]))
        assert seen == [torch.float32]
    assert losses[1] == pytest.approx(losses[0], abs=2e-3)


def test_the_metric_is_the_mean_over_the_test_splits_bytes(book, tmp_path):
    made = task.load("gpt", {**TINY, "data": str(book)})
    raw = book.read_bytes()[5700:]
    (windows,) = made.data()["test"]
    count = 299 // 24
    assert windows.shape == (count, 25)
    torch.manual_seed(0)
    model = made.model().eval()
    total = 0.0
    with torch.no_grad():
        for i in range(count):
            piece = torch.tensor(list(raw[24 * i : 24 * i + 25]))
            logs = torch.log_softmax(model(piece[None, :-1])[0].double(), 1)
            total -= sum(float(logs[j, piece[j + 1]]) for j in range(24))
        loss, value = made.loss(model, (windows,))
    assert float(loss) == pytest.approx(total / (24 * count), rel=1e-5)
    assert float(value) == float(loss)


def test_windows_are_pieces_of_the_text_from_the_seed(book):
    text = np.frombuffer(book.read_bytes(), np.uint8)
    windows = RandomWindows(text, steps=50, batch=4, context=24)
    torch.manual_seed(5)
    first = [w for (w,) in windows]
    torch.manual_seed(5)
    again = [w for (w,) in windows]
    other = [w for (w,) in windows]
    assert len(first) == len(windows) == 50
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    raw = book.read_bytes()
    assert all(bytes(row.tolist()) in raw for w in first for row in w)
    with pytest.raises(LabError, match="choose a smaller context"):
        RandomWindows(text[:20], 1, 1, 24)


def test_windows_and_weights_can_be_shared_by_all_seeds():
    text, count = np.arange(200, dtype=np.uint8), itertools.count()

    def drawn(seed, epoch):
        torch.manual_seed(next(count))  # does not matter
        windows = RandomWindows(text, 2, 3, 8, seed)
        windows.set_epoch(epoch)
        return torch.stack([window for (window,) in windows])

    assert torch.equal(drawn(0, 1), drawn(0, 1))
    assert not torch.equal(drawn(0, 1), drawn(0, 2))
    assert not torch.equal(drawn(0, 1), drawn(1, 1))

    def weights(seed, **options):
        torch.manual_seed(seed)
        made = torch.cat(
            [
                p.flatten()
                for p in Gpt(layers=1, width=16, heads=2, inner=16, context=8, **options).model().parameters()
            ]
        )
        return made, torch.rand(1)

    assert torch.equal(weights(1, init_seed=0)[0], weights(2, init_seed=0)[0])
    assert not torch.equal(weights(1, init_seed=0)[0], weights(1, init_seed=1)[0])
    assert not torch.equal(weights(1)[0], weights(2)[0])
    next_draw = weights(1, init_seed=0)[1]
    torch.manual_seed(1)
    assert torch.equal(next_draw, torch.rand(1))  # the run's own generator is untouched


def test_the_gradient_is_clipped(book):
    made = task.load("gpt", {**TINY, "data": str(book), "clip": 1e-2})
    torch.manual_seed(0)
    model = made.model()
    made.loss(model, next(iter(made.data()["train"])))[0].backward()
    made.before_step(model)
    norm = math.sqrt(sum(float(p.grad.square().sum()) for p in model.parameters()))
    assert norm == pytest.approx(1e-2, rel=1e-3)


@pytest.mark.parametrize("optimizer", ["adaxw", MUON])
def test_resumed_within_an_epoch_it_ends_with_the_same_bits(optimizer, book, tmp_path):
    whole = process.run(asked(book, optimizer), tmp_path / "a")
    stop = Stop()

    def progress(step, total, metric):
        if step >= 8:
            stop.signum = 15

    with pytest.raises(Interrupted):
        process.run(asked(book, optimizer), tmp_path / "b", Settings(checkpoint_seconds=0), progress, stop)
    again = process.run(asked(book, optimizer), tmp_path / "b")
    assert again.done["sessions"] == 2
    assert again.done["model_sha256"] == whole.done["model_sha256"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "steps=0: must be > 0"),
        ({"precision": "int8"}, "precision='int8': must be bf16 or fp32"),
        ({"weights": "fp16"}, "weights='fp16': must be bf16 or fp32"),
        ({"weights": "bf16", "precision": "fp32"}, "weights='bf16': needs precision=bf16"),
        ({"depth": 3}, "depth"),
    ],
)
def test_wrong_options_are_errors_of_one_line(options, message):
    with pytest.raises(LabError, match=message):
        task.load("gpt", options)


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(LabError, match="adax data get enwik8"):
        task.load("gpt", {"data": str(tmp_path)}).data()


# -- study ------------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:betas")  # b2*T = 30 in 2,000 steps is b2 = 0.015
def test_the_study_is_fair_and_can_be_made(book):
    given = replace(GPT, task_options={**GPT.task_options, **SIZES, "data": str(book)})
    assert {len(row.rates) for row in given.rows} == {6}
    total = 2000
    factor = schedule.factor(given.schedule, total)
    assert factor(199) == 1.0
    assert factor(total - 1) == pytest.approx(0.1, rel=1e-3)
    for row in given.rows:
        for lr in row.rates:
            for purpose, length in (("final", total), ("tune", 600)):
                made = given.spec(row, lr, seed=0, purpose=purpose)
                assert made["epochs"] * 100 == length
                assert made["options"]["weight_decay"] * lr == pytest.approx(1e-4, rel=1e-4)
                optimizer_options.check(row.method, made["options"])
                if row.b2_steps:
                    assert made["options"]["betas"][1] * length == pytest.approx(row.b2_steps, rel=1e-5)
    assert {row.b2_steps for row in given.rows if row.name.startswith("adaxw@b2T")} == {1, 3, 10, 30}


@pytest.mark.parametrize(("epochs", "trials"), [(20, 6), (10, 3), (1, 1)])
def test_a_shorter_study_has_shorter_trials(epochs, trials):
    made = variants.changed(GPT, epochs=epochs)
    assert (made.length("final"), made.length("tune")) == (epochs, trials)


@pytest.mark.filterwarnings("ignore:betas")
def test_rates_from_end_to_end(book, tmp_path):
    """The best of the trials on the validation split goes to fresh seeds on the test split, and so to the page."""
    rows = (
        study.Row("adamw", options={"betas": [0.9, 0.95]}, rates=(1e-5, 3e-3), lr_decay=1e-4),
        study.Row("adaxw@b2T=1", options={}, rates=(3e-3, 1e-5), b2_steps=0.09, lr_decay=1e-4),
    )
    small = study.Study(
        "gpt", rows, "gpt", epochs=2, batch_size=4, baseline="adamw", tuning=study.Tuning(2), target=5.3, seeds=3,
        task_options={**TINY, "data": str(book)}, schedule={"name": "cosine", "warmup": 0.1, "final": 0.1},
    )  # fmt: skip
    made = driver.carry_out(small, tmp_path / "runs")
    found = summarise(small, made)
    splits = enwik8.as_bytes(book)
    whole = b"".join(splits[part].tobytes() for part in ("train", "valid", "test"))
    assert {r.spec["data"] for r in made} == {hashlib.sha256(whole).hexdigest()}
    for row in found.rows:
        assert (row.lr, row.n, row.diverged) == (3e-3, 3, 0)
        assert row.trials[3e-3] < row.trials[1e-5]
        assert all(6 <= s <= 12 for s in row.steps_to)
    adamw, adaxw = found.rows
    assert adaxw.options["betas"] == [0.9, 0.0075]
    assert adamw.verdict is None
    lines = table(found.study, found.records, tables.transformer(found.study, found.records)).splitlines()
    seen = adaxw.estimate
    shown = f"{seen.mean:.4f} ({seen.low:.4f} to {seen.high:.4f})"
    assert f"| 3 | {shown} | {adaxw.verdict.outcome}" in lines[3]
    assert "| 0.003 (edge) | 0.0075 (0.09) |" in lines[3]
    assert f"{sum(adaxw.steps_to) / 3:.0f} (3 of 3)" in lines[3]


def test_the_committed_runs_are_those_that_the_study_asks_for(monkeypatch):
    """Every record has the name that the study gives to its run, so that nothing is run twice."""
    runs = records.load(Path(__file__).parents[2] / "records", "gpt")
    monkeypatch.setattr(study, "_data_digest", lambda *given: runs[0].spec["data"])
    monkeypatch.setattr(study, "_epoch_steps", lambda *given: 100)
    rates = driver.rates_of(GPT, runs)
    asked = [s for row in GPT.rows for i, lr in enumerate(row.rates) for s in GPT.trials(row, lr, i)]
    asked += [s for row in GPT.rows for s in GPT.finals(row, rates[row.name])]
    assert {spec.digest(s) for s in asked} == {r.name for r in runs}
