"""The segmentation task from end to end: both layouts, groups and schedule by hand, resuming, studies."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import torch
import voc_sets
from torch._dynamo.utils import counters

from adaxlab import driver, optimizer_options, optimizers, randomness, records, spec, store
from adaxlab import study as studies
from adaxlab import task as tasks
from adaxlab.data.segmentation.images import VOID
from adaxlab.errors import Interrupted, LabError
from adaxlab.execute import process
from adaxlab.loop import fingerprint
from adaxlab.paper.tables import voc as tables
from adaxlab.paper.tables.study import table
from adaxlab.paper.voc import ADAMW, ADAXW, AMSGRADW, SGDM, STUDIES
from adaxlab.settings import Settings
from adaxlab.signals import Stop

SMALL = {"backbone": "tiny", "batch": 2, "crop": 33, "steps": 4}
ROOT = Path(__file__).parents[2]


def asked(root, epochs=4, options=None, optimizer="adaxw", seed=3, **more):
    return spec.make(
        study="s",
        task="voc",
        task_options={**SMALL, "data": str(root), **more},
        optimizer=optimizer,
        options=options or {"lr": 2e-3},
        epochs=epochs,
        batch_size=2,
        seed=seed,
        schedule={"name": "poly", "power": 0.9},
    )


# -- from end to end --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", voc_sets.SETS)
def test_both_layouts_from_end_to_end(layout, tmp_path):
    root = voc_sets.SETS[layout](tmp_path / "set")
    record = process.run(asked(root, steps=6), tmp_path / "runs")
    assert [line["step"] for line in record.metrics] == [6, 12, 18, 24]
    assert record.done["split"] == "test"
    assert record.done["metric_name"] == "mean IoU"
    assert record.metrics[-1]["train_loss"] < 0.9 * record.metrics[0]["train_loss"]
    assert record.metrics[-1]["valid_loss"] < record.metrics[0]["valid_loss"]
    for line in record.metrics:
        t = line["step"] - 1
        assert line["lr"] == pytest.approx(2e-3 * (1 - t / 24) ** 0.9, rel=1e-12)


@pytest.mark.parametrize("layout", voc_sets.SETS)
def test_the_measure_of_a_split_against_a_matrix_by_hand(layout, tmp_path):
    """Image by image with numpy, one matrix for all of them."""
    task = tasks.load("voc", {**SMALL, "data": str(voc_sets.SETS[layout](tmp_path))})
    torch.manual_seed(0)
    (whole,) = task.data()["test"]
    net = task.model()
    for branch in net.aspp.branches:
        torch.nn.init.normal_(branch.weight, std=0.1)  # predictions of many classes
    with torch.no_grad():
        loss, metric = task.loss(net.eval(), whole)
    classes = {"camvid": 11, "voc": 21}[layout]
    matrix, losses, count = np.zeros((classes, classes), dtype=int), 0.0, 0
    for start, height, width in whole.images.places():
        pixels = whole.images.pixels[start : start + height * width].view(height, width, 4)
        with torch.no_grad():
            scores = net(pixels[..., :3].permute(2, 0, 1)[None].float())[0].permute(1, 2, 0).double().numpy()
        log_p = scores - np.log(np.exp(scores - scores.max(-1, keepdims=True)).sum(-1, keepdims=True))
        log_p -= scores.max(-1, keepdims=True)
        for y, x in np.argwhere(pixels[..., 3].numpy() != VOID):
            mask = int(pixels[y, x, 3])
            matrix[mask, scores[y, x].argmax()] += 1
            losses, count = losses - log_p[y, x, mask], count + 1
    both = np.diag(matrix)
    union = matrix.sum(0) + matrix.sum(1) - both
    assert (union > 0).sum() > 3
    assert metric.item() == pytest.approx(np.mean(both[union > 0] / union[union > 0]), abs=1e-9)
    assert loss.item() == pytest.approx(losses / count, rel=1e-5)


def test_groups_against_a_step_written_out(tmp_path):
    """x1, x10, x20; decay on weights, none on the head's biases; the runner takes the groups."""
    root = voc_sets.camvid(tmp_path / "set")
    lr, decay = 0.03, 0.05
    options = {"lr": lr, "momentum": 0.0, "weight_decay": decay}
    record = process.run(
        asked(root, epochs=1, optimizer="torch:SGD", options=options, steps=1), tmp_path / "runs"
    )
    task = tasks.load("voc", {**SMALL, "data": str(root), "steps": 1})
    with randomness.controlled(3, torch.device("cpu"), 1):
        crops = task.data()["train"]
        net = task.model().train()
        (batch,) = list(crops)
        task.loss(net, batch)[0].backward()
        with torch.no_grad():
            for name, p in net.named_parameters():
                times = 1 if name.startswith("backbone.") else 20 if name.endswith(".bias") else 10
                decayed = 0.0 if name.endswith(".bias") else decay
                p.sub_(times * lr * (p.grad + decayed * p))
        by_hand = {name: p.detach().clone() for name, p in net.named_parameters()}
    with randomness.controlled(3, torch.device("cpu"), 1):
        net = task.model().train()
        (batch,) = list(crops)
        optimizer = optimizers.build("torch:SGD", task.groups(net, options), options)
        task.loss(net, batch)[0].backward()
        optimizer.step()
    assert fingerprint(net) == record.done["model_sha256"]
    for name, p in net.named_parameters():
        torch.testing.assert_close(p.detach(), by_hand[name], rtol=1e-5, atol=1e-7)
    assert [g["lr"] for g in optimizer.param_groups] == [lr, 10 * lr, 20 * lr]


@pytest.mark.parametrize("stop_at", [2, 6])
def test_resumed_it_ends_with_the_same_bits(stop_at, tmp_path):
    root = voc_sets.camvid(tmp_path / "set")
    whole = process.run(asked(root, epochs=2), tmp_path / "a")
    stop, seen = Stop(), []

    def progress(step, total, metric):
        seen.append(step)
        if step >= stop_at:
            stop.signum = 15

    with pytest.raises(Interrupted):
        process.run(asked(root, epochs=2), tmp_path / "b", Settings(checkpoint_seconds=0), progress, stop)
    assert stop_at <= seen[-1] < whole.done["steps"]
    again = process.run(asked(root, epochs=2), tmp_path / "b")
    assert again.done["sessions"] == 2
    assert again.done["model_sha256"] == whole.done["model_sha256"]
    assert again.done["metric"] == whole.done["metric"]


def test_images_kept_on_the_host_and_a_holdout_to_tune_on(tmp_path):
    root = voc_sets.voc(tmp_path / "set")
    device, host = (process.run(asked(root, epochs=1, keep=keep), tmp_path) for keep in ("device", "host"))
    assert device.done["model_sha256"] == host.done["model_sha256"]
    with pytest.raises(LabError, match="'valid'"):
        process.run({**asked(root, epochs=1), "purpose": "tune"}, tmp_path)
    tuned = process.run({**asked(root, epochs=1, holdout=0.34), "purpose": "tune"}, tmp_path)
    assert tuned.done["split"] == "valid"
    held = tasks.load("voc", {**SMALL, "data": str(root), "holdout": 0.34})
    splits = held.data()
    assert (splits["train"].images, len(splits["valid"][0].images)) == (4, 2)
    starts = set(held.train.start.tolist()) | set(splits["valid"][0].images.start.tolist())
    assert len(starts) == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backbone": "resnet18"}, "unknown backbone 'resnet18'; known are resnet50"),
        ({"style": "flax"}, "unknown style 'flax'; known are auto, torch, caffe, keras"),
        ({"keep": "disk"}, "unknown keep 'disk'"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"crop": 0}, "crop=0: must be > 0"),
        ({"holdout": 1.0}, "holdout=1.0: must be in"),
        ({"weights": "nowhere.pth"}, "weights=nowhere.pth: no such file"),
    ],
)
def test_wrong_options_are_one_line(given, message, tmp_path):
    with pytest.raises(LabError) as caught:
        tasks.load("voc", given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_on_a_gpu_it_is_the_same_task(tmp_path):
    """Crops, scores in bf16 and the measure beside the CPU's; then a run that learns."""
    root = voc_sets.voc(tmp_path / "set")
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        task = tasks.load("voc", {**SMALL, "data": str(root)})
        splits = task.data()
        net = task.model().to(device)
        batch = tuple(part.to(device) for part in next(iter(splits["train"])))
        with torch.no_grad():
            found.append((task.loss(net, batch)[0].item(), task.loss(net, splits["test"][0])[0].item()))
    assert found[0] == pytest.approx(found[1], rel=2e-2)
    record = process.run(asked(root, steps=6), tmp_path / "runs", Settings("cuda"))
    assert record.metrics[-1]["train_loss"] < 0.9 * record.metrics[0]["train_loss"]


# -- studies ----------------------------------------------------------------------------------------------------------


CAMVID, TUNING, GRID, EIGHT, NEW = STUDIES


def test_the_studies_are_the_recipe_and_fair():
    lrs = {row.name: row.options["lr"] for row in CAMVID.rows}
    decays = {row.name: row.options["weight_decay"] for row in CAMVID.rows}
    assert (lrs[SGDM], lrs[ADAMW], lrs[AMSGRADW], lrs[ADAXW]) == (2.5e-4, 1e-6, 1e-6, 1e-5)
    assert (decays[SGDM], decays[ADAMW], decays[AMSGRADW], decays[ADAXW]) == (5e-4, 0.1, 0.1, 5e-2)
    assert CAMVID.row(ADAXW).at(1e-5, 2000)["betas"] == [0.9, 1e-3]
    for study in STUDIES:
        assert (study.epochs, study.task_options["steps"]) == (4, 500)
        assert study.seeds == {"voc/grid": 0, "voc/eight": 8, "voc/camvid-new": 5}.get(study.name, 3)
        assert study.schedule == {"name": "poly", "power": 0.9}
        for row in study.rows:
            optimizer_options.check(row.method, row.at(row.options["lr"], 2000))
            if study is TUNING:
                assert len(row.rates) == 5
                assert row.rates[2] == {SGDM: 2.5e-4, ADAMW: 3e-5, AMSGRADW: 3e-5, ADAXW: 1e-4}[row.name]
                ratios = [b / a for a, b in zip(row.rates, row.rates[1:], strict=False)]
                assert ratios == pytest.approx([10**0.5] * 4, rel=0.06)
    assert all(row in CAMVID.rows for row in NEW.rows)
    assert not set(NEW.all_seeds) & {*CAMVID.all_seeds, *EIGHT.all_seeds, *TUNING.all_seeds}


def test_eight_takes_decay_and_lr_from_the_grid():
    """Both methods may try the same four rates at the same two decays; the best of eight goes on."""
    settings = {(row.method, row.options["weight_decay"], row.rates) for row in GRID.rows}
    assert settings == {(m, d, (1e-4, 2e-4, 3e-4, 5e-4)) for m in (ADAMW, ADAXW) for d in (0.05, 0.1)}
    scores = {
        f"{ADAMW} wd 0.05": 40.0,
        f"{ADAMW} wd 0.1": 41.0,
        f"{ADAXW} wd 0.05": 43.0,
        f"{ADAXW} wd 0.1": 42.0,
    }
    runs = []
    for row in GRID.rows:
        for lr in row.rates:
            spec = {
                "row": row.name,
                "purpose": "tune",
                "options": {"lr": lr},
                "seed": 20_000,
                "study": GRID.name,
            }
            metric = scores[row.name] - (lr != 2e-4)
            done = {"status": "finished", "metric": metric, "higher_is_better": True}
            runs.append(store.RunRecord(spec, {}, [], done, Path("x")))
    made, rates = driver.follow(EIGHT, GRID, runs)
    assert rates == {ADAMW: 2e-4, ADAXW: 2e-4}
    assert [row.options["weight_decay"] for row in made.rows] == [0.1, 0.05]
    assert [row.b2_steps for row in made.rows] == [None, 2.0]


@pytest.mark.parametrize("study", [CAMVID, TUNING], ids=lambda study: study.name)
def test_the_committed_runs_are_those_that_the_study_asks_for(study, monkeypatch):
    runs = records.load(ROOT / "records", study.name)
    monkeypatch.setattr(studies, "_data_digest", lambda *asked: runs[0].spec["data"])
    monkeypatch.setattr(studies, "_epoch_steps", lambda *asked: 500)
    rates = driver.rates_of(study, runs) if study.tuning else {row.name: row.lr() for row in study.rows}
    asked = [s for row in study.rows for s in study.finals(row, rates[row.name])]
    asked += [s for row in study.rows for i, lr in enumerate(row.rates) for s in study.trials(row, lr, i)]
    assert {spec.digest(s) for s in asked} == {r.name for r in runs}


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # the compiler's own imports
def test_compiled_it_is_the_same_network(tmp_path, monkeypatch):
    """Loss and gradients of a training batch; an evaluation is not compiled. Traced and differentiated as always; the
    code that is made of it last is torch's own (`inductor` takes half a minute)."""
    traced = functools.partialmethod(torch.nn.Module.compile, backend="aot_eager")
    monkeypatch.setattr(torch.nn.Module, "compile", traced)
    root = voc_sets.camvid(tmp_path / "set")
    found = []
    for compile in (False, True):
        torch.manual_seed(0)
        task = tasks.load("voc", {**SMALL, "data": str(root), "compile": compile})
        splits, net = task.data(), task.model().train()
        counters.clear()
        for batch in list(splits["train"])[:2]:
            loss, _ = task.loss(net, batch)
            loss.backward()
        trained = counters["stats"]["unique_graphs"]
        with torch.no_grad():
            whole = task.loss(net.eval(), splits["test"][0])[0]
        assert counters["stats"]["unique_graphs"] == trained == int(compile)
        found.append((loss, whole, [p.grad for p in net.parameters()]))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_study_from_its_data_to_its_table(tmp_path):
    """Two rows with two rates each; places on this machine are no part of a record."""
    root = voc_sets.camvid(tmp_path / "set", counts=(3, 1, 1))
    rows = tuple(
        dataclasses.replace(TUNING.row(name), rates=TUNING.row(name).rates[:2]) for name in (SGDM, ADAXW)
    )
    options = {**TUNING.task_options, **SMALL, "steps": 1, "data": str(root), "weights": ""}
    small = dataclasses.replace(TUNING, rows=rows, tuning=studies.Tuning(2), seeds=2, task_options=options)
    found = driver.carry_out(small, tmp_path / "runs")
    path = store.export(found, tmp_path / "r.jsonl")
    assert str(tmp_path) not in path.read_text()
    assert all(len(r.metrics) == 4 for r in found)
    for name in (SGDM, ADAXW):
        mine = [r for r in found if r.spec["optimizer"] == name]
        tried = {r.spec["options"]["lr"]: r.done["metric"] for r in mine if r.spec["purpose"] == "tune"}
        (final,) = {r.spec["options"]["lr"] for r in mine if r.spec["purpose"] == "final"}
        assert tried[final] == max(tried.values())
    found = store.read_export(path)
    shown = table(small, found, tables.layout(small, found))
    for rate in (2.5e-5, 7.9e-5):
        assert f"{rate:g}: " in shown.partition("The learning rates tried")[2].splitlines()[4]
