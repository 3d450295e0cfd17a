"""The command on the page of a report: parsed by the real command line, it asks for the runs that the records hold."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from report_records import record

from adaxlab import compare, optimizer_options, options
from adaxlab.report import command, series
from adaxlab.store import RunRecord
from adaxlab.study import Row, Study, Tuning
from adaxlab.variants import with_base_seed


@pytest.mark.parametrize("tune", [0, 3])
def test_the_command_on_the_page_makes_the_same_runs(tune):
    """Parsed by the real command line, it gives the specifications that the records hold."""
    tyro = pytest.importorskip("tyro")
    from adaxlab.commands import Compare

    given = {"adaxw": {"weight_decay": 0.1, "betas": [0.8, 1e-3]}, "sgdm": {} if tune else {"lr": 0.05}}
    asked = Study(
        task="digits",
        rows=compare.rows(("sgdm", "adaxw"), given),
        seeds=2,
        tuning=Tuning(tune) if tune else None,
        name="s",
        epochs=7,
        batch_size=32,
        schedule={"name": "step", "milestones": [0.4, 0.9], "gamma": 0.2},
    ).complete()

    def finals(study):
        return [s for row in study.rows for s in study.finals(row, 0.0123 if tune else row.lr())]

    specs = finals(asked)
    rates = (0.1, 0.2, 0.3)[:tune]
    specs += [s for row in asked.rows for i, lr in enumerate(rates) for s in asked.trials(row, lr, i)]
    runs = [RunRecord(spec, {}, [], None, Path("x")) for spec in specs]
    [line] = command.commands(series.studies(runs)[0])
    words = shlex.split(line)
    assert words[:2] == ["adax", "compare"]
    parsed = tyro.cli(Compare, args=words[2:])
    again = Study(
        task=parsed.task,
        rows=compare.rows(parsed.optimizers, options.per_optimizer(parsed.set)),
        seeds=parsed.seeds,
        tuning=Tuning(parsed.tune) if parsed.tune else None,
        name="s",
        task_options=options.pairs(parsed.task_option),
        epochs=parsed.epochs,
        batch_size=parsed.batch_size,
        schedule=parsed.schedule,
    ).complete()
    assert finals(again) == specs[:4]
    assert (again.seeds, again.tuning) == (2, asked.tuning)


def test_the_command_on_the_page_says_what_was_tuned_and_the_seeds():
    asked = with_base_seed(
        Study(
            task="digits",
            rows=compare.rows(("adamw", "adaxw"), {"adamw": {"eps": 1e-7}}),
            seeds=2,
            tuning=Tuning(2, over=("lr", "weight_decay", "b2", "clip_update=1:4"), sampler="random"),
            epochs=7,
        ),
        3,
    ).complete()
    points = [
        {"lr": 0.1, "weight_decay": 0.3, "b2": 0.9, "clip_update": 2.0},
        {"lr": 0.2, "weight_decay": 0.4, "b2": 0.99, "clip_update": 3.0},
    ]
    specs = [
        s
        for row in asked.rows
        for i, point in enumerate(points)
        for s in asked.trials(row.tuned(point), point["lr"], i)
    ]
    specs += [s for row in asked.rows for s in asked.finals(row.tuned(points[1]), 0.2)]
    runs = series.studies([RunRecord(spec, {}, [], None, Path("x")) for spec in specs])[0]
    start = "adax compare digits --optimizers adamw adaxw --seeds 2 --base-seed 3 --tune 2 --tune-over"
    end = "--set adamw.eps=1e-07"
    [line] = command.commands(runs, asked)
    assert line.startswith(f"{start} lr weight_decay b2 clip_update=1:4 --sampler random --epochs 7")
    assert line.endswith(end)
    [line] = command.commands(runs)  # from the records alone: the range of the trials
    assert line.startswith(f"{start} b2 clip_update=2:3 lr weight_decay --epochs 7")
    assert line.endswith(end)


@pytest.mark.parametrize(
    ("memory", "over", "point"),
    [("Fading(0.99)", "b2", {"b2": 0.95}), ("LogTime(8)", "b1", {"b1": 0.5}), ("LogTime(8)", "lr", {})],
)
def test_a_memory_on_the_page_has_its_number(memory, over, point):
    lab = pytest.importorskip("adaxlab.commands")
    rows = compare.rows(("adaxw",), {"adaxw": {"memory": memory}})
    asked = Study(task="digits", rows=rows, seeds=1, tuning=Tuning(1, over=("lr", over)[: 1 + bool(point)]))
    asked = asked.complete()
    tuned = asked.rows[0].tuned(point)
    specs = [*asked.trials(tuned, 0.1, 0), *asked.finals(tuned, 0.1)]
    runs = series.studies([RunRecord(spec, {}, [], None, Path("x")) for spec in specs])[0]
    [line] = command.commands(runs, asked)
    parsed = lab.parse(shlex.split(line)[1:])
    [again] = compare.rows(parsed.optimizers, options.per_optimizer(parsed.set))
    both = (optimizer_options.complete("adaxw", row.at(0.1, 50)) for row in (again.tuned(point), tuned))
    assert next(both) == next(both)


def test_variants_have_a_command_each():
    runs = [record(seed=s, options={"b2": b2}.items()) for s in range(3) for b2 in (1e-3, 1e-4)]
    lines = command.commands(series.studies(runs)[0])
    assert [line.rpartition("adaxw.b2=")[2] for line in lines] == ["0.001", "0.0001"]


@pytest.mark.parametrize(
    "words",
    [
        "--optimizers adamw adaxw --tune 3",
        "--optimizers adamw adaxw --tune 1 --tune-over lr weight_decay --sampler random --base-seed 2",
        "--optimizers sgdm adaxw adaxw@slow --baseline adaxw --set adaxw@slow.weight_decay=0.1 --margin 0.01",
        "--optimizers adaxw adamw --set adaxw.memory=Growing(0.001).floor(0.01) adamw.eps=1e-7 --target 0.5",
        "--optimizers adamw torch:SGD+adaxw --tune 0 --set adamw.lr=0.1 torch:SGD+adaxw.second.lr=1 --confidence 0.9",
        "--optimizers adaxw --schedule cosine,warmup=0.05 --epochs 2 --set adaxw.betas=0.9,0.001 --study mine",
    ],
)
def test_the_command_of_a_stored_study_asks_for_the_same_study(words):
    """Options that a run derives, such as b2 = 3/T, are not set; the rule, the baseline and second names are kept."""
    lab = pytest.importorskip("adaxlab.commands")
    asked = lab.parse(["compare", "digits", *words.split()]).of("digits", False).complete()
    trials = [s for row in asked.rows for s in asked.trials(row, 0.1, 0)] if asked.tuning else []
    specs = [*trials, *(s for row in asked.rows for s in asked.finals(row, 0.1))]
    runs = series.studies([RunRecord(spec, {}, [], None, Path("x")) for spec in specs])[0]
    [line] = command.commands(runs, asked)
    again = lab.parse(shlex.split(line)[1:]).of("digits", False).complete()
    assert again.data() == asked.data()


def test_a_plan_that_compare_cannot_express_is_not_its_command():
    asked = Study(task="digits", rows=(Row("adaxw", b2_steps=10.0),), seeds=1, name="s").complete()
    specs = asked.finals(asked.rows[0], 0.1)
    runs = series.studies([RunRecord(spec, {}, [], None, Path("x")) for spec in specs])[0]
    [line] = command.commands(runs, asked)
    assert "--set adaxw.betas=0.9,0.02" in line
