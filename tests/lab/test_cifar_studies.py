"""CIFAR-10's studies as data, carried out on a small set; claims, tables and the page from records."""

from __future__ import annotations

import itertools
import json
import sys
import types
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from cifar_sets import binary, make

from adaxopt.lab.cifar import __main__ as bare
from adaxopt.lab.cifar import drive, plan, studies
from adaxopt.lab.cifar.adopt import adopt
from adaxopt.lab.cifar.book import BEST, STUDIES, TABLE2, Row, Study
from adaxopt.lab.cifar.feed import Images
from adaxopt.lab.cifar.rules import CLAIMS
from adaxopt.lab.cifar.stack import Recipe, Run, Stack
from adaxopt.lab.errors import LabError
from adaxopt.lab.imagenet import book as imagenet
from adaxopt.lab.imagenet.recipe import Recipe as ImageNetRecipe
from adaxopt.lab.optimizers import build
from adaxopt.lab.tasks.cifar10 import Cifar10, crop_and_flip, normalise

RECORDS = Path(__file__).parents[2] / "records"
CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "set"
    place.mkdir()
    binary(place, make(train=20, test=10))
    return str(place)


# -- the book -------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:betas")  # ImageNet's b2*T = 50 in a look of a third of the length
@pytest.mark.parametrize(
    "study", [*STUDIES.values(), *imagenet.STUDIES.values()], ids=lambda s: f"{type(s).__module__}:{s.name}"
)
def test_every_row_can_be_built(study):
    assert len({row.name for row in study.rows}) == len(study.rows)
    for row in study.rows:
        p = torch.nn.Parameter(torch.ones(3))
        p.grad = torch.ones(3)
        build(row.optimizer, [p], row.options).step()
        assert torch.isfinite(p).all()


def test_the_main_table_is_the_recipe():
    assert TABLE2.seeds >= 5
    assert TABLE2.recipe == Recipe(epochs=182, milestones=(100, 150), gamma=0.1, batch=128)
    settings = {row.name: (row.options["lr"], row.options["weight_decay"]) for row in TABLE2.rows}
    assert settings == {
        "sgdm-5e-4": (0.1, 5e-4),
        "sgdm-1e-4": (0.1, 1e-4),
        "adamw": (1e-3, 0.1),
        "amsgradw": (1e-3, 0.1),
        "adaxw": (5e-3, 5e-2),
    }


def test_tuned_rates_are_the_best_of_the_record():
    """Accuracy on the held-out images, the last epoch's; the rates tried and the rest of each row are tuning's."""
    best: dict[str, tuple[float, float]] = {}
    rest = {}
    for line in drive.records(RECORDS / "cifar10" / "tuning.jsonl"):
        assert line["images"] == 50_000 - 4_944
        method = line["row"].split()[0]
        best[method] = max(best.get(method, (0.0, 0.0)), (line["test_accuracy"], line["options"]["lr"]))
        rest[method] = (line["optimizer"], {k: v for k, v in line["options"].items() if k != "lr"})
    assert {method: lr for method, (_, lr) in best.items()} == BEST
    rows = {row.name: row for row in STUDIES["tuned"].rows}
    assert {name: row.options["lr"] for name, row in rows.items()} == BEST
    for name, row in rows.items():
        assert (row.optimizer, {k: v for k, v in row.options.items() if k != "lr"}) == rest[name]


def test_half_of_the_tuned_study_is_table2s():
    study = STUDIES["tuned"]
    assert (study.seeds, study.holdout, study.recipe) == (5, 0, TABLE2.recipe)
    lines = drive.records(RECORDS / "cifar10" / "table2.jsonl")
    found = adopt(study, study.runs(), lines, 50_000, "bf16")
    assert {(r["row"], r["seed"], r["same_run_as"]) for r in found} == {
        (row, seed, source)
        for row, source in (("sgdm", "table2: sgdm-5e-4"), ("adaxw", "table2: adaxw"))
        for seed in range(5)
    }


def test_every_study_asks_something():
    assert all(study.asks.endswith("?") for study in STUDIES.values())


def test_claims_speak_of_rows_that_exist():
    assert len({c.id for c in CLAIMS}) == len(CLAIMS)
    for claim in CLAIMS:
        for name in filter(None, (claim.a, claim.b)):
            study, _, row = name.rpartition(": ")
            assert row in {r.name for r in STUDIES[study or claim.study].rows}, (claim.id, name)


# -- carrying out ---------------------------------------------------------------------------------------------------


def test_a_study_in_one_go_and_in_pieces(folder, tmp_path, monkeypatch):
    options = dict(data=folder, device="cpu", seeds=1, epochs=2, tell=lambda text: None)
    assert studies.run("cifar10/table2", str(tmp_path / "one"), **options)
    whole = drive.records(tmp_path / "one" / "table2.jsonl")
    assert [r["row"] for r in whole] == [row.name for row in TABLE2.rows]
    assert all(len(r["curve"]["test_accuracy"]) == 2 and r["images"] == 20 for r in whole)
    assert studies.run("cifar10/table2", str(tmp_path / "one"), **options)
    assert len(drive.records(tmp_path / "one" / "table2.jsonl")) == 5

    ticks = itertools.count(step=10)
    monkeypatch.setattr(drive, "time", types.SimpleNamespace(monotonic=lambda: next(ticks)))
    pieces = tmp_path / "two"
    assert not studies.run(
        "cifar10/table2", str(pieces), seconds=40, **options
    )  # each look at the clock takes ten
    assert list(pieces.glob("*.part"))
    assert drive.records(pieces / "table2.jsonl") == []
    said = []
    assert (
        studies.run("cifar10/table2", str(pieces), **{**options, "tell": said.append})
        == pieces / "table2.jsonl"
    )
    assert "| AdaX-W |" in said[-1]
    assert [r["curve"] for r in drive.records(pieces / "table2.jsonl")] == [r["curve"] for r in whole]
    assert list(pieces.glob("*.part")) == []


@pytest.mark.parametrize(
    ("changed", "key"), [({"epochs": 2}, "epochs 1, 2 is"), ({"data": "other"}, "images 20, 10 is")]
)
def test_a_run_with_other_settings_is_not_taken_for_the_studys(changed, key, folder, tmp_path):
    options = dict(data=folder, device="cpu", seeds=1, epochs=1, tell=lambda text: None)
    assert studies.run("cifar10/table2", str(tmp_path / "out"), **options)
    if "data" in changed:
        (tmp_path / "other").mkdir()
        binary(tmp_path / "other", make(train=10, test=10))
        changed = {"data": str(tmp_path / "other")}
    with pytest.raises(
        LabError, match=f"sgdm-5e-4 seed 0 was run with {key} asked for; choose another folder"
    ):
        studies.run("cifar10/table2", str(tmp_path / "out"), **{**options, **changed})


def test_a_run_of_another_study_is_not_run_again(folder, tmp_path):
    """beta2's row at 1e-4 is table2's AdaX-W, whatever it is called there; the other rows are not."""
    options = dict(data=folder, device="cpu", seeds=1, epochs=1, tell=lambda text: None)
    (tmp_path / "a").mkdir()
    table2 = studies.run("cifar10/table2", str(tmp_path / "a"), **options)
    own, said = drive.records(table2), []
    for place, where in (("a", {}), ("b", {"reuse": str(tmp_path / "a")})):
        beta2 = drive.records(
            studies.run("cifar10/beta2", str(tmp_path / place), **{**options, **where, "tell": said.append})
        )
        assert len(beta2) == 3
        (adopted,) = (r for r in beta2 if "same_run_as" in r)
        assert (adopted["row"], adopted["same_run_as"]) == ("adaxw b2 0.0001", "table2: adaxw")
        (source,) = (r for r in own if r["row"] == "adaxw")
        assert adopted["curve"] == source["curve"]
        assert "beta2: 1 runs are table2's own" in said
    again = drive.records(studies.run("cifar10/beta2", str(tmp_path / "c"), **options))
    assert not any("same_run_as" in r for r in again)
    (run_anew,) = (r for r in again if r["row"] == "adaxw b2 0.0001")
    for key, values in run_anew["curve"].items():  # nothing would have been learned
        assert values == pytest.approx(adopted["curve"][key], rel=1e-5)


@pytest.mark.parametrize(
    ("study", "changed", "count"),
    [
        ("epsilon", {}, 2),
        ("padax", {}, 2),
        ("trace", {}, 0),
        ("runtime", {}, 0),
        ("tuning", {}, 0),
        ("lr", {}, 1),
        ("lr", {"precision": "fp32"}, 0),
        ("lr", {"images": 49_999}, 0),
        ("lr", {"seed": 7}, 0),
        ("lr", {"same_run_as": "other: row"}, 0),
        ("decay", {}, 0),
    ],
)
def test_what_may_be_adopted(study, changed, count):
    lines = [{**line, **changed} for line in drive.records(RECORDS / "cifar10" / "table2.jsonl")]
    lines.append({"kind": "the first line of a file of another kind"})
    chosen = STUDIES[study]
    found = adopt(chosen, [run for run in chosen.runs() if run.seed == 0], lines, 50_000, "bf16")
    assert len(found) == count
    assert all(line["study"] == study for line in found)


def test_runs_of_another_length_or_data_set_are_not_mixed(folder, tmp_path):
    """A study of another data set may have the same name and the same row names: imagenet/tuning has."""
    line = {"study": "table2", "row": "adaxw", "seed": 0, "images": 20}
    for recipe in (replace(TABLE2.recipe, epochs=1), ImageNetRecipe()):
        (tmp_path / "table2.jsonl").write_text(json.dumps({**line, "recipe": asdict(recipe)}) + "\n")
        with pytest.raises(
            LabError, match=r"table2.jsonl: adaxw seed 0 was run with .* choose another folder"
        ):
            studies.run("cifar10/table2", str(tmp_path), data=folder, device="cpu", tell=lambda text: None)


def test_no_time_at_all_leaves_a_checkpoint_to_go_on_from(folder, tmp_path):
    options = dict(data=folder, device="cpu", seeds=1, epochs=1, tell=lambda text: None)
    assert studies.run("cifar10/table2", str(tmp_path), seconds=0.0, **options) is False
    assert drive.records(tmp_path / "table2.jsonl") == []
    assert list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(name="cifar10/table3"), "unknown study 'cifar10/table3'; known are cifar10/table2"),
        (dict(name="cifar10/table2", precision="fp8"), "unknown precision 'fp8'; known are bf16"),
        (dict(name="cifar10/table2", data="/nowhere"), "no CIFAR-10 there"),
        (dict(name="cifar10/table2", per_stack=0), "per_stack=0: must be 1 or more"),
        (dict(name="cifar10/table2", seeds=-1), "seeds=-1: must be 0 or more"),
        (dict(name="cifar10/table2", epochs=-2), "epochs=-2: must be 0 or more"),
        (dict(name="cifar10/table2", reuse="/nowhere"), "reuse=/nowhere: no such folder"),
    ],
)
def test_wrong_input(options, message, folder, tmp_path):
    name = options.pop("name")
    with pytest.raises(LabError, match=message):
        studies.run(name, str(tmp_path), **{"data": folder, "device": "cpu", **options})


def test_the_command_of_a_bare_machine_ends_with_a_code_and_one_line(folder, tmp_path, monkeypatch, capsys):
    def code(*arguments):
        monkeypatch.setattr(sys, "argv", ["cifar", "runtime", "--device", "cpu", *map(str, arguments)])
        return bare.main()

    out = ("--out", tmp_path)
    assert code("--data", "/nowhere", *out) == 2
    assert capsys.readouterr().err.startswith("/nowhere: no CIFAR-10 there")
    assert code("--data", folder, *out, "--seconds", 0) == 3
    assert code("--data", folder, *out, "--seconds", 0) == 3
    said = capsys.readouterr().out
    assert "runtime: 1 runs go on from epoch 0" in said
    assert "the same call goes on from here" in said
    for part in tmp_path.glob("*.part"):
        part.write_bytes(b"damaged")
    assert code("--data", folder, *out) == 1
    assert "damaged, or one of them is missing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "alone", "shape"),
    [
        (25, False, [6]),
        (4, False, [4, 2]),
        (5, False, [4, 2]),
        (1, False, [1] * 6),
        (25, True, [1] * 6),
    ],
)
def test_stacks_are_whole_seeds(size, alone, shape):
    study = Study("x", (Row("a", "adaxw", {"lr": 1.0}), Row("b", "adaxw", {"lr": 2.0})), seeds=3, alone=alone)
    cut = plan.stacks([plan.Job(study, run) for run in study.runs()], size)
    assert [len(part) for part in cut] == shape
    assert sorted((j.run.row, j.run.seed) for part in cut for j in part) == [
        (row, s) for row in "ab" for s in range(3)
    ]
    if alone:
        assert [part[0].run.row for part in cut] == ["a", "b"] * 3
    if size == 4:
        assert [(j.run.row, j.run.seed) for j in cut[0]] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]


def test_held_out_images_are_not_trained_on():
    x, y, _, _ = make(50, 10)
    x[:, 0, 0, 0] = np.arange(50)
    rest, kept = studies.hold_out(Images.of(x, y, CPU), 14)
    ids = [set(part.images[:, 0, 0, 0].tolist()) for part in (rest, kept)]
    assert len(ids[0]) == 36
    assert len(ids[1]) == 14
    assert not ids[0] & ids[1]
    again = studies.hold_out(Images.of(x, y, CPU), 14)[1]
    assert torch.equal(again.images, kept.images)
    with pytest.raises(LabError, match="holdout=50: must be between 1 and 49"):
        studies.hold_out(Images.of(x, y, CPU), 50)


def test_a_network_without_fused_kernels_trains_in_a_stack():
    x, y, tx, ty = make(5, 5)
    train, test = Images.of(x, y, CPU), Images.of(tx, ty, CPU)
    some = [Run("adax", "adax", {"lr": 1.5e-3, "weight_decay": 5e-4}, 0)]
    stack = Stack(some, train, test, Recipe(model="resnet18", epochs=1, batch=5))
    before = stack.network.parameters.clone()
    stack.run_epoch()
    moved = (stack.network.parameters - before).abs()
    assert (moved > 0).float().mean() > 0.99
    assert moved.max() < 1.5e-3 * 1.001 * 0.1  # the first step of AdaX is lr*(1-b1) at most


# -- the task -------------------------------------------------------------------------------------------------------


def test_task_reads_and_learns(folder):
    task = Cifar10(data=folder)
    x, y = task.data()["train"]
    assert x.dtype == torch.uint8
    assert x.shape == (20, 32, 32, 3)
    net = task.model()
    optimizer = build("adaxw", net.parameters(), {"lr": 5e-3})
    first = None
    for _ in range(6):
        optimizer.zero_grad()
        loss, right = task.loss(net, (x, y))
        assert right.shape == (20,)
        loss.backward()
        optimizer.step()
        first = loss.item() if first is None else first
    assert loss.item() < 0.8 * first


def test_task_crops_are_crops():
    images = torch.from_numpy(make(40, 10)[0])
    out = crop_and_flip(images)
    seen = set()
    for image, got in zip(images.numpy(), out.numpy(), strict=True):
        padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
        every = {
            (dy, dx, flip): padded[dy : dy + 32, dx : dx + 32][:, :: -1 if flip else 1]
            for dy in range(9)
            for dx in range(9)
            for flip in (0, 1)
        }
        matches = [key for key, crop in every.items() if np.array_equal(crop, got)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert len(seen) > 20
    assert {key[2] for key in seen} == {0, 1}


def test_task_normalises_and_schedules():
    task = Cifar10()
    x = torch.full((1, 32, 32, 3), 255, dtype=torch.uint8)
    white = [(1 - 0.4914) / 0.2023, (1 - 0.4822) / 0.1994, (1 - 0.4465) / 0.2010]
    np.testing.assert_allclose(normalise(x)[0, :, 0, 0], white, rtol=1e-6)
    from adaxopt.lab.schedule import factor

    f = factor(task.schedule, task.epochs * 391)
    assert [f(e * 391) for e in (0, 99, 100, 149, 150)] == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    assert f(100 * 391 - 1) == 1
    with pytest.raises(LabError, match="unknown model 'vgg'"):
        Cifar10(model="vgg")


def test_task_without_data_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAX_DATA", str(tmp_path))
    with pytest.raises(LabError, match=r"adax data get cifar10.*data=FOLDER"):
        Cifar10().data()
