"""Planning and output of a comparison: a budget in hours, a base seed, JSON, several GPUs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import TINY

from adaxlab import budget, cli, compare, estimate, logs, store, study, variants
from adaxlab.errors import LabError
from adaxlab.settings import Settings


def small(**changes):
    given = dict(name="small", seeds=5, epochs=1, tuning=study.Tuning(8))
    return study.Study(f"{TINY}:Tiny", compare.rows(("sgdm", "adamw")), **{**given, **changes})


class TestBudget:
    @pytest.mark.parametrize("text", ["", "2", "h", "2 hours", "-1h", "0s", "1h x", "1:30"])
    def test_what_is_no_time_is_one_line(self, text):
        with pytest.raises(LabError, match="--budget"):
            budget.seconds(text)

    @pytest.mark.parametrize(
        ("rounds", "knobs", "expected"),
        [
            (13, 1, (8, 5)), (12, 1, (7, 5)), (9, 1, (4, 5)), (8, 1, (4, 4)), (7, 1, (4, 3)), (6, 1, (3, 3)),
            (5, 1, (2, 3)), (4, 1, None), (13, 2, (8, 5)), (12, 2, (8, 4)), (8, 2, (5, 3)), (6, 2, None),
        ],
    )  # fmt: skip
    def test_trials_are_cut_first_then_seeds_then_trials(self, rounds, knobs, expected):
        assert budget.fit(8, 5, lambda trials, seeds: trials + seeds <= rounds, knobs) == expected

    def test_without_tuning_seeds_are_cut(self):
        assert budget.fit(0, 9, lambda trials, seeds: trials + seeds <= 4) == (0, 4)

    def test_the_plan_is_made_once_and_kept(self, tmp_path, monkeypatch, capsys):
        seen = []

        def measured(given, root, settings):
            seen.append(given.rows[0].name)
            return estimate.Estimate(given.runs(), 0, 2.0 if len(seen) <= 2 else 1e6)

        monkeypatch.setattr(estimate, "measure", measured)
        first = budget.settle(
            small(name=""), "20s", tmp_path, Settings(), 1
        )  # a round of both takes 4 s: 5 fit
        assert (first.tuning.trials, first.seeds, seen) == (2, 3, ["sgdm", "adamw"])
        assert first.budget["cut"] == "trials cut from 8 to 2, seeds cut from 5 to 3"
        assert "trials cut from 8 to 2, seeds cut from 5 to 3" in capsys.readouterr().err
        compare.compare(first, tmp_path)
        assert len(store.load_runs(tmp_path)) == 2 * (2 + 3)
        again = budget.settle(
            small(name=""), "20s", tmp_path, Settings(), 4
        )  # slower by now: not asked again
        assert (again, len(seen)) == (first, 2)
        assert "as planned before the first run, 2 trials and 3 seeds" in capsys.readouterr().err
        more = budget.settle(small(name="", seeds=7), "20s", tmp_path, Settings(), 1)
        assert (more.seeds, more.tuning.trials, more.name) == (
            7,
            2,
            first.name,
        )  # an extension, as the answer proposes
        stored = json.loads(next(tmp_path.rglob("study.json")).read_text())
        assert (stored["budget"]["trials"], stored["budget"]["seeds"], stored["tuning"]["trials"]) == (
            8,
            5,
            2,
        )

    def test_more_processes_have_more_time(self, tmp_path, monkeypatch):
        monkeypatch.setattr(estimate, "measure", lambda *given: estimate.Estimate(1, 0, 2.0))
        assert budget.settle(small(), "20s", tmp_path, Settings(), 3).tuning.trials == 8
        with pytest.raises(
            LabError, match="2 trials and 3 seeds of 2 optimizers take about 20 seconds; give more time"
        ):
            budget.settle(small(), "19s", tmp_path, Settings(), 1)

    def test_a_real_measurement(self, tmp_path):
        found = budget.settle(small(), "1d", tmp_path, Settings(), 1)
        assert found.budget["cut"] == "nothing was cut"
        assert 0 < found.budget["seconds_of_a_round"] < 3600
        assert "budget" not in small().data()  # a study without one is written as before


def test_all_seeds_follow_from_the_base_seed(tmp_path):
    assert variants.with_base_seed(small(), 0) == small()
    seeds = []
    for base in (1, 2):
        given = variants.with_base_seed(small(name="", seeds=2, tuning=study.Tuning(2)), base)
        records = compare.compare(given, tmp_path).records
        seeds.append({r.spec["seed"] for r in records})
    assert seeds == [{100_000, 100_001, 110_000}, {200_000, 200_001, 210_000}]
    assert len(list(tmp_path.rglob("study.json"))) == 2  # two studies
    with pytest.raises(LabError, match="base-seed=-1: must be from 0 to 9999"):
        variants.with_base_seed(small(), -1)


def test_json_has_the_whole_result(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = [
        "compare",
        f"{TINY}:Tiny",
        "--optimizers",
        "sgdm",
        "adamw",
        "--epochs",
        "1",
        "--seeds",
        "3",
        "--tune",
        "3",
    ]
    words += [
        "--device",
        "cpu",
        "--quiet",
        "--json",
        "--tune-over",
        "lr",
        "weight_decay",
        "--sampler",
        "random",
    ]
    pytest.importorskip("optuna")
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["metric"], found["higher_is_better"], found["study"]["baseline"]) == (
        "accuracy",
        True,
        "adamw",
    )
    assert found["answer"]["text"]
    sgdm, adamw = found["optimizers"]
    assert adamw["verdict"] is None
    assert sgdm["verdict"]["outcome"] in ("better", "worse", "inconclusive")
    assert sgdm["verdict"]["provisional"] is True
    for row in (sgdm, adamw):
        assert list(row["values"]) == ["0", "1", "2"]
        assert [trial["trial"] for trial in row["trials"]] == [0, 1, 2]
        assert row["estimate"]["mean"] == pytest.approx(sum(row["values"].values()) / 3)
        assert set(row["options"]) >= {"lr", "weight_decay"}
    assert {r.name for r in store.load_runs("runs") if r.spec["purpose"] == "final"} == {
        *sgdm["runs"],
        *adamw["runs"],
    }


def test_other_metrics_are_in_table_and_json(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(
        Path(TINY).read_text()
        + "\n\nclass Two(Tiny):\n"
        + "    def evaluate(self, model, split):\n"
        + "        right = torch.cat([model(x).argmax(1) == y for x, y in split]).float()\n"
        + "        return {'accuracy': right.mean(), 'errors': (1 - right).sum()}\n"
    )
    monkeypatch.chdir(tmp_path)
    words = [
        "compare",
        "own.py:Two",
        "--optimizers",
        "sgdm",
        "adamw",
        "--epochs",
        "1",
        "--seeds",
        "2",
        "--tune",
        "2",
    ]
    assert cli.main([*words, "--device", "cpu", "--quiet"]) == 0
    assert "errors" in capsys.readouterr().out
    assert cli.main([*words, "--device", "cpu", "--quiet", "--json"]) == 0
    for row in json.loads(capsys.readouterr().out)["optimizers"]:
        errors = [r.done["metrics"]["errors"] for r in store.load_runs("runs") if r.name in row["runs"]]
        assert row["other_metrics"]["errors"]["mean"] == pytest.approx(sum(errors) / 2)
        assert row["estimate"]["mean"] == pytest.approx(1 - sum(errors) / 2 / 40)


def test_a_failed_optimizer_is_in_the_json_with_its_traceback(tmp_path, monkeypatch, capsys):
    (tmp_path / "own.py").write_text(
        Path(TINY).read_text()
        + "\n\nclass Breaks(PlainSGD):\n    def step(self, closure=None):\n        raise RuntimeError('no more')\n"
    )
    monkeypatch.chdir(tmp_path)
    words = [
        "compare",
        "own.py:Tiny",
        "--optimizers",
        "own.py:Breaks",
        "adamw",
        "--set",
        "own.py:Breaks.lr=0.1",
    ]
    assert (
        cli.main(
            [*words, "--epochs", "1", "--seeds", "3", "--tune", "2", "--device", "cpu", "--quiet", "--json"]
        )
        == 1
    )
    broken, adamw = json.loads(capsys.readouterr().out)["optimizers"]
    assert "no more" in broken["error"]
    assert "Traceback" in Path(broken["traceback"]).read_text()
    assert adamw["error"] is None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tune", "0", "--tune-over", "lr", "b2"], "there is nothing to tune with --tune 0"),
        (["--budget", "soon"], "--budget soon: must be a time such as 2h"),
        (["--log", "tensorbord"], "unknown --log 'tensorbord'"),
        (["--base-seed", "-3"], "base-seed=-3: must be from 0 to 9999"),
        (["--seeds", "10001"], "seeds=10001: seed 10000 is used for tuning; must be at most 10000"),
        (["--tune=-3"], "--tune -3: must be >= 0"),
        (["--target", "nan"], "target=nan: must be a finite number"),
        (["--tune-over", "speed"], "--tune-over speed: has no default range"),
    ],
)
def test_bad_flags_are_one_line(more, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["compare", f"{TINY}:Tiny", "--device", "cpu", "--quiet", *more]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1
    assert not Path("runs").exists()


def test_watchers_of_a_study_are_told_the_same():
    told = []

    class Watch:
        def start(self, study, runs):
            told.append(("start", runs))

        def running(self, spec, step, total, metric):
            told.append(("running", step))

        def finished(self, record):
            told.append(("finished", record))

    both = logs.Several(Watch(), Watch())
    both.start(replace(small()), 3)
    both.running({}, 1, 2, None)
    both.finished(None)
    assert told == [("start", 3)] * 2 + [("running", 1)] * 2 + [("finished", None)] * 2
