"""Speed on ImageNet: what a round of the methods in turn is made of, its record, its table and its claim."""

from __future__ import annotations

import json
import types
from dataclasses import replace

import pytest
import torch
from picture_sets import SMALL, resident, small

from adaxlab.imagenet import __main__ as command
from adaxlab.imagenet import book, drive, speed, tables
from adaxlab.imagenet.feed import Feed
from adaxlab.imagenet.ranks import Ranks
from adaxlab.imagenet.train import WARM, Training
from adaxlab.records import load

CPU = torch.device("cpu")
ALONE = Ranks(CPU)
BOTH = book.TINY.runs()[:2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small(tmp_path_factory.mktemp("pictures") / "set")


@pytest.fixture
def data(folder):
    return resident(folder)


@pytest.mark.parametrize(
    ("device", "world", "graphs"), [("cpu", 1, (False,)), ("cuda", 1, (False, True)), ("cuda", 2, (False,))]
)
def test_speed_asks_for_a_graph_where_there_can_be_one(device, world, graphs):
    assert speed.graphs(Ranks(torch.device(device), 0, world)) == graphs


def test_speed_of_input_and_training(data):
    said: list[str] = []
    how = drive.How("fp32")
    found = speed.measure(data, SMALL, ALONE, how, batches=2, tell=said.append, runs=BOTH, study="tiny")
    rows = [line.split(":")[0] for line in said if "in turn" not in line]
    assert rows == [row["what"] for row in found["rows"]]
    turns = found["in_turn"]
    assert {row: len(ms) for row, ms in turns["ms"].items()} == {"sgdm": 9, "adamw": 9}
    assert {key: turns[key] for key in ("study", "compiled", "graph", "processes", "steps")} == {
        "study": "tiny",
        "compiled": False,
        "graph": False,
        "processes": 1,
        "steps": 1,
    }
    assert [r["what"] for r in found["rows"]] == ["read, no network", "read and crop, no network", "training"]
    assert "| read and crop, no network |" in tables.speed_table(found)


STEP = {"sgdm": 0.5, "adamw": 2.0}
OPENING = 64.0
"""Seconds that the beginning of an epoch takes by the clock of the test below."""


@pytest.mark.parametrize("steps", [1, 3])
def test_a_round_has_its_own_steps_in_it_and_no_others(data, monkeypatch, steps):
    """By a clock that a step moves by its method's seconds, and the beginning of an epoch by many more."""
    now, launched, said = [0.0], [], []
    kept = Feed.epoch

    def epoch(self, seed, number, *rest):
        now[0] += OPENING
        yield from kept(self, seed, number, *rest)

    def launch(self, batch):
        launched.append((self.run.row, batch))
        now[0] += STEP[self.run.row]

    monkeypatch.setattr(Feed, "epoch", epoch)
    monkeypatch.setattr(Training, "_launch", launch)
    monkeypatch.setattr(speed, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    turns = speed.in_turn(BOTH, data, SMALL, ALONE, drive.How("fp32"), steps, said.append)
    warm = WARM + 2
    # batches of each: the warm ones, then `steps` a round; there are two full batches in an epoch of 18 pictures
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
    assert said == [
        "2 methods in turn: warm-up ...",
        *(f"2 methods in turn: round {k} of 9 ..." for k in range(1, 10)),
    ]


KNOWN = {"study": "tiny", "compiled": True, "graph": True, "processes": 1}


def record(ms, **turns):
    return {
        "rows": [{"what": "training", "images_per_second": 23456.7, "ms": 10.9}],
        "batch": 256,
        "stored": 64,
        "model": "resnet18",
        "precision": "bf16",
        "in_turn": {"steps": 20, **turns, "ms": ms},
        "environment": {"hardware": {"device": "a device"}, "versions": {"torch": "2"}},
    }


@pytest.mark.parametrize("name", book.STUDIES)
def test_every_studys_rows_have_a_table(name):
    rows = [row.name for row in book.STUDIES[name].rows]
    text = tables.speed_table(record({row: [4.0, 9.0, 4.5] for row in rows}, **KNOWN))
    assert text.count("| 4.500 | 3 |") == len(rows)


def put(root, found):
    place = root / "records" / "imagenet" / "speed.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(found))
    return root


@pytest.mark.parametrize(
    ("turns", "said", "judged"),
    [
        (KNOWN, "study tiny, 20 steps a round, compiled, by a CUDA graph.", True),
        ({**KNOWN, "compiled": False, "graph": False}, "not compiled, not by a CUDA graph.", True),
        ({**KNOWN, "processes": 8}, "by a CUDA graph, 8 processes.", True),
        ({**KNOWN, "study": "tiny-resnet50"}, "study tiny-resnet50,", False),
        ({**KNOWN, "study": "tiny, changed"}, "study tiny, changed, 20 steps", False),
    ],
)
def test_the_table_of_speeds_says_how_and_the_claim_is_about_one_study(tmp_path, turns, said, judged):
    ms = {"adaxw": [4.0, 9.0, 4.5]}
    put(tmp_path, record(ms, **turns))
    text = tables.speed(tmp_path)
    assert "| training | 23,457 | 10.90 |" in text
    assert "| AdaX-W | 4.500 | 3 |" in text
    assert said in text
    found = load(tmp_path / "records", "imagenet/speed")
    assert [run.done["step_ms"] for run in found] == (ms["adaxw"] if judged else [])


def test_no_rounds_are_rounds_that_were_not_measured(tmp_path):
    assert "Not measured yet" in tables.speed(tmp_path)
    found = record({})
    del found["in_turn"]
    put(tmp_path, found)
    assert tables.speed(tmp_path).endswith("torch 2. Methods in turn: not measured.")
    assert load(tmp_path / "records", "imagenet/speed") == []


def arguments(folder, out):
    words = f"speed --data {folder} --device cpu --precision fp32 --workers 1 --batches 2 --record {out}"
    return words.split()


@pytest.mark.parametrize(("more", "study"), [([], "tiny"), (["--width", "5"], "tiny, changed")])
def test_the_record_is_written_before_the_table(folder, tmp_path, monkeypatch, more, study):
    def broken(found):
        raise KeyError("a table that cannot be made")

    tiny = replace(book.TINY, recipe=SMALL, rows=book.TINY.rows[:2])
    monkeypatch.setitem(book.STUDIES, "tiny", tiny)
    monkeypatch.setattr(speed, "ROUNDS", 1)
    out = tmp_path / "new" / "speed.json"
    monkeypatch.setattr(tables, "speed_table", broken)
    with pytest.raises(KeyError, match="cannot be made"):
        command.main([*arguments(folder, out), *more])
    found = json.loads(out.read_text())
    assert list(found["in_turn"]["ms"]) == ["sgdm", "adamw"]
    assert found["in_turn"]["study"] == study


def test_tuning_is_not_timed_and_the_help_says_what_a_round_is(capsys):
    with pytest.raises(SystemExit):
        command.main(["speed", "--study", "tuning"])
    assert "invalid choice: 'tuning'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["speed", "--help"])
    assert "a fifth of them is a round" in " ".join(capsys.readouterr().out.split())
    for name in command.TIMED:
        methods = [row.name for row in book.STUDIES[name].rows]
        assert set(methods) <= set(tables.TITLES), name
