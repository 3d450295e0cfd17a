"""benchmarks/imagenet.py: what a round of the methods in turn is made of, its record and its claim."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest
import torch
from image_sets import OPTIONS, small
from made_records import KNOWN, put_speed, speed_record

from adaxlab import records
from adaxlab.data.images.loader import Loader
from adaxlab.distributed import Ranks
from adaxlab.imagenet.train import WARM, Training
from adaxlab.paper.imagenet import TINY
from adaxlab.paper.tables import imagenet as tables
from adaxlab.settings import ExecutionConfig
from adaxlab.tasks.imagenet import ImageNet
from adaxlab.variants import changed

ALONE = Ranks(torch.device("cpu"))


@pytest.fixture(scope="module")
def speed():
    place = Path(__file__).parents[2] / "benchmarks" / "imagenet.py"
    given = importlib.util.spec_from_file_location("benchmark_imagenet", place)
    module = sys.modules["benchmark_imagenet"] = importlib.util.module_from_spec(given)
    given.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small(tmp_path_factory.mktemp("images") / "set")


def task_and_specs(folder, *rows):
    study = changed(TINY, batch_size=7, data=str(folder), **OPTIONS)
    specs = [study.spec(row, row.lr(), seed=0, purpose="final") for row in study.rows if row.name in rows]
    return ImageNet(**study.task_options), specs


@pytest.mark.parametrize(
    ("device", "world", "graphs"), [("cpu", 1, (False,)), ("cuda", 1, (False, True)), ("cuda", 2, (False,))]
)
def test_a_graph_is_measured_where_there_can_be_one(speed, device, world, graphs):
    assert speed.graphs(Ranks(torch.device(device), 0, world)) == graphs


STEP = {"sgdm": 0.5, "adamw": 2.0}
OPENING = 64.0
"""Seconds that the beginning of an epoch takes by the clock of the test below."""


@pytest.mark.parametrize("steps", [1, 3])
def test_a_round_has_its_own_steps_in_it_and_no_others(speed, folder, monkeypatch, steps):
    """By a clock that a step moves by its method's seconds, and the beginning of an epoch by many more."""
    now, launched, said = [0.0], [], []
    kept = Loader.epoch

    def epoch(self, seed, number, *rest):
        now[0] += OPENING
        yield from kept(self, seed, number, *rest)

    def launch(self, batch):
        launched.append((self.spec["row"], batch))
        now[0] += STEP[self.spec["row"]]

    monkeypatch.setattr(Loader, "epoch", epoch)
    monkeypatch.setattr(Training, "_launch", launch)
    monkeypatch.setattr(speed, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    given = task_and_specs(folder, "sgdm", "adamw")
    turns = speed.in_turn(*given, ALONE, ExecutionConfig(), steps, said.append)
    warm = WARM + 2
    # batches of each: the warm ones, then `steps` a round; there are two full batches in an epoch of 18 images
    seen = {row: [batch for who, batch in launched if who == row] for row in STEP}
    assert {len(batches) for batches in seen.values()} == {warm + speed.ROUNDS * steps}
    assert all(torch.equal(a.raw, b.raw) for a, b in zip(*seen.values(), strict=True))
    for row, each in STEP.items():
        wanted = []
        for number in range(speed.ROUNDS):
            first = warm + number * steps
            openings = sum(i % 2 == 0 for i in range(first, first + steps))
            wanted.append(1e3 * (each * steps + OPENING * openings) / steps)
        assert turns["ms"][row] == pytest.approx(wanted, abs=1e-4)
    # the order is turned round every other time
    order = [who for i, (who, _) in enumerate(launched) if i == 0 or launched[i - 1][0] != who]
    assert order == ["adamw", *["sgdm", "adamw"] * 5]
    rounds = [f"2 methods in turn: round {k} of 9 ..." for k in range(1, 10)]
    assert said == ["2 methods in turn: warm-up ...", *rounds]


@pytest.mark.parametrize(
    ("study", "judged"), [("tiny", True), ("tiny-resnet50", False), ("tiny, changed", False)]
)
def test_the_claim_is_about_one_study(tmp_path, study, judged):
    ms = {"adaxw": [4.0, 9.0, 4.5]}
    put_speed(tmp_path, speed_record(ms, **{**KNOWN, "study": study}))
    found = records.load(tmp_path / "records", "imagenet/speed")
    assert [run.done["step_ms"] for run in found] == (ms["adaxw"] if judged else [])


def test_the_record_is_written_before_the_table(speed, folder, tmp_path, monkeypatch):
    def broken(found):
        raise KeyError("a table that cannot be made")

    monkeypatch.setattr(speed, "ROUNDS", 1)
    monkeypatch.setattr(tables, "speed", broken)
    out = tmp_path / "new" / "speed.json"
    words = (
        f"--data {folder} --device cpu --batches 2 --batch-size 7 --out {out} --set size=16 stored=16 width=4"
    )
    with pytest.raises(KeyError, match="cannot be made"):
        speed.main([*words.split(), "precision=fp32"])
    found = json.loads(out.read_text())
    assert [row["what"] for row in found["rows"]] == [
        "read, no network",
        "read and crop, no network",
        "training",
    ]
    turns = found["in_turn"]
    assert {row: len(ms) for row, ms in turns.pop("ms").items()} == {row.name: 1 for row in TINY.rows}
    how = {"compiled": False, "graph": False, "processes": 1}
    assert turns == {"study": "tiny, changed", "steps": 1, **how}
