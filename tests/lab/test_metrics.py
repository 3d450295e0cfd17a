"""Metrics of a whole split: what `evaluate` of a task returns is judged, stored and shown, and never averaged over
batches."""

from __future__ import annotations

import json
import math

import pytest
from torch.nn import functional as F

from adaxlab import spec, store, task
from adaxlab.errors import LabError, RunError
from adaxlab.execute import process

TASK = """
import torch
from torch.nn import functional as F

def points(n, seed):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=rng)
    y = (x[:, 0] > 0.8).long() + (x[:, 1] > 1.0).long()          # classes of unequal size
    return x, y

KEPT = []

class Base:
    higher_is_better, epochs, batch_size, eval_batch_size = True, 2, 32, 7

    def data(self):
        return {"train": points(160, 1), "test": points(61, 2)}

    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))

    def loss(self, model, batch):
        x, y = batch
        return F.cross_entropy(model(x), y)

    def outputs(self, model, split):
        out, y = zip(*((model(x), y) for x, y in split))
        KEPT.append((torch.cat(out), torch.cat(y), split.name, len(split)))
        return torch.cat(out), torch.cat(y)

class MacroF1(Base):
    metric = "macro_f1"

    def evaluate(self, model, split):
        out, y = self.outputs(model, split)
        hits = torch.zeros(3, 3).index_put_((y, out.argmax(1)), torch.ones(len(y)), accumulate=True)
        f1 = 2 * hits.diag() / (hits.sum(0) + hits.sum(1)).clamp(min=1)
        return {"macro_f1": f1.mean(), "accuracy": hits.diag().sum() / hits.sum()}

class Auc(Base):
    metric = "auc"

    def evaluate(self, model, split):
        out, y = self.outputs(model, split)
        score = out.softmax(1)[:, 0]
        up, down = score[y == 0], score[y != 0]
        pairs = (up[:, None] > down).double() + 0.5 * (up[:, None] == down).double()
        return {"auc": pairs.mean()}

class MeanIou(Base):
    metric = "miou"

    def evaluate(self, model, split):
        out, y = self.outputs(model, split)
        guess = out.argmax(1)
        parts = [((guess == c) & (y == c)).sum() / ((guess == c) | (y == c)).sum() for c in range(3)]
        return {"miou": torch.stack(parts).mean(), "worst": min(parts)}

class Switches(MacroF1):
    def evaluate(self, model, split):
        assert not model.training and not torch.is_grad_enabled()
        assert len(list(split)) == len(list(split)) == len(split)
        return super().evaluate(model, split)

class Nothing(MacroF1):
    def evaluate(self, model, split):
        return {}

class OtherName(MacroF1):
    def evaluate(self, model, split):
        return {"f1": 0.5}

class Word(MacroF1):
    def evaluate(self, model, split):
        return {"macro_f1": "high"}

class NotANumber(MacroF1):
    def evaluate(self, model, split):
        return {"macro_f1": float("nan")}

class Undefined(MacroF1):
    def evaluate(self, model, split):
        return {**super().evaluate(model, split), "recall": float("nan"), "perplexity": float("inf")}

class Lost(MacroF1):
    higher_is_better = False

    def evaluate(self, model, split):
        return {"macro_f1": float("inf")}

class NoMethod(MacroF1):
    evaluate = 3

class Explodes(MacroF1):
    def loss(self, model, batch):
        return super().loss(model, batch) * (float("nan") if not model.training else 1.0)

    def evaluate(self, model, split):
        raise AssertionError("asked of a run that has diverged")
"""


@pytest.fixture
def ran(tmp_path):
    file = tmp_path / "task.py"
    file.write_text(TASK)

    def run(name, **more):
        given = dict(
            study="s",
            task=f"{file}:{name}",
            optimizer="adamw",
            options={"lr": 0.02},
            epochs=2,
            batch_size=32,
            seed=0,
        )
        made = spec.make(**{**given, **more})
        record = process.run(made, tmp_path / "runs")
        return record, task.find(f"{file}:Base").data.__globals__["KEPT"]

    return run


def by_sklearn(name, out, y):
    metrics = pytest.importorskip("sklearn.metrics")
    guess = out.argmax(1).numpy()
    if name == "macro_f1":
        return metrics.f1_score(y.numpy(), guess, average="macro")
    if name == "auc":
        return metrics.roc_auc_score(y.numpy() == 0, out.softmax(1)[:, 0].numpy())
    return metrics.jaccard_score(y.numpy(), guess, average="macro")


@pytest.mark.parametrize(("task", "name"), [("MacroF1", "macro_f1"), ("Auc", "auc"), ("MeanIou", "miou")])
@pytest.mark.parametrize("purpose", ["final", "tune"])
def test_the_metric_of_the_whole_split_is_judged(ran, task, name, purpose):
    record, kept = ran(task, purpose=purpose)
    out, y, split, batches = kept[-1]
    rows = {"final": 61, "tune": 32}[purpose]  # the test set, or a fifth of the training set
    assert (len(y), batches, split) == (
        rows,
        math.ceil(rows / 7),
        {"final": "test", "tune": "valid"}[purpose],
    )
    assert record.done["metric_name"] == name
    assert record.done["metric"] == record.metrics[-1]["metric"] == record.done["metrics"][name]
    assert record.done["metric"] == pytest.approx(by_sklearn(name, out, y), abs=1e-6)


def test_it_is_not_the_mean_over_batches(ran):
    record, kept = ran("MacroF1")
    out, y, *_ = kept[-1]
    per_batch = [by_sklearn("macro_f1", o, t) for o, t in zip(out.split(7), y.split(7), strict=True)]
    assert abs(record.done["metric"] - sum(per_batch) / len(per_batch)) > 0.01


def test_the_other_metrics_are_kept_with_the_run(ran, tmp_path):
    record, kept = ran("MacroF1")
    out, y, *_ = kept[-1]
    assert list(record.done["metrics"]) == ["macro_f1", "accuracy"]
    assert record.done["metrics"]["accuracy"] == pytest.approx((out.argmax(1) == y).float().mean())
    assert record.done["valid_loss"] == pytest.approx(F.cross_entropy(out, y).item(), rel=1e-5)
    assert [line["train_metric"] for line in record.metrics] == [None, None]  # `loss` returned the loss alone
    file = store.export([record], tmp_path / "out.jsonl")
    assert store.read_export(file)[0].metrics == record.metrics
    assert json.loads((record.path / "done.json").read_text())["metrics"] == record.done["metrics"]


def test_the_model_is_in_evaluation_mode_without_gradients_and_the_split_can_be_read_twice(ran):
    assert ran("Switches")[0].done["metric"] == ran("MacroF1")[0].done["metric"]


def test_a_run_that_diverged_is_not_evaluated(ran):
    assert ran("Explodes")[0].done["status"] == "diverged"


def test_a_further_metric_that_is_undefined_is_shown_as_such(ran):
    done = ran("Undefined")[0].done
    assert (done["metrics"]["recall"], done["metrics"]["perplexity"]) == (None, None)
    assert done["metric"] == ran("MacroF1")[0].done["metric"]


def test_an_infinitely_bad_metric_is_a_run_that_diverged(ran):
    assert ran("Lost")[0].done["status"] == "diverged"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("Nothing", "evaluate() gave an empty dict; it must return a dict of named numbers"),
        ("OtherName", "evaluate() gave f1; the first must be the task's metric, macro_f1"),
        ("Word", "evaluate() must give one number for each name"),
        ("NotANumber", "the macro_f1 is nan though the loss is a number"),
        ("NoMethod", "evaluate must be a method, not int"),
    ],
)
def test_bad_metrics_are_one_line(ran, task, words):
    with pytest.raises((LabError, RunError)) as caught:
        ran(task)
    assert words in str(caught.value)
