"""Tuning over more than the learning rate: equal budgets, ranges that follow from each optimizer's own settings,
samplers that are replayed from the runs, whenever the command was stopped."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from adaxlab import compare, driver, search, space, store, study
from adaxlab.errors import LabError
from adaxlab.store import RunRecord
from adaxlab.variants import with_base_seed

HERE = Path(__file__).parent
TINY = str(HERE / "tiny.py")
OVER = ("lr", "weight_decay", "b2")
RANGES = {"a": (1e-4, 1.0, True), "b": (0.0, 1.0, False)}
TIMES = {"seconds", "step_seconds", "loop_seconds", "sessions"}


def small(over=OVER, sampler="", trials=5, optimizers=("sgdm", "adamw", "adaxw"), **changes):
    tuning = study.Tuning(trials, over=tuple(over), sampler=sampler)
    given = dict(name="small", seeds=2, epochs=4, batch_size=9, tuning=tuning)
    return study.Study(f"{TINY}:Tiny", compare.rows(optimizers), **{**given, **changes})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    pytest.importorskip("optuna")
    root = tmp_path_factory.mktemp("runs")
    return root, compare.compare(small(), root)


def trials(result, name):
    found = [r for r in result.records if r.row == name and r.spec["purpose"] == "tune"]
    return sorted(found, key=lambda r: r.spec["trial"])


class TestSpace:
    def of(self, method, *words, **own):
        return space.of(method, own, space.parse(words))

    def test_ranges_follow_from_the_optimizers_own_settings(self):
        assert self.of("adamw", *OVER) == {
            "lr": space.Range(1e-5, 0.1), "weight_decay": space.Range(1e-4, 1.0),
            "b2": space.Range(0.8, 0.9999, below_one=True),
        }  # fmt: skip
        assert self.of("adamw", "lr", lr=0.02)["lr"] == space.Range(2e-4, 2.0)
        assert self.of("adaxw", "b2")["b2"] == space.Range(0.3, 30)  # b2*T
        assert self.of("sgdm", *OVER) == {
            "lr": space.Range(1e-5, 0.1),
            "weight_decay": space.Range(1e-6, 0.1),
        }
        decay, growth = space.Range(0.8, 0.9999, below_one=True), space.Range(0.3, 30)
        assert self.of("adaxw", "b2", memory="Fading(0.99)") == {"b2": decay}
        assert self.of("adamw", "b2", memory="growing") == {"b2": growth}
        assert self.of("adaxw", "b2", memory="growing floor 0.001") == {"b2": growth}
        assert self.of("torch:SGD+adaxw", "b2", memory="Fading(0.99)") == {"b2": decay}
        for memory in ("LogTime(8)", "Equal()", "Power(0.5)"):  # their number is no b2
            assert self.of("adaxw", "b1", "b2", memory=memory) == {
                "b1": space.Range(0.5, 0.99, below_one=True)
            }
        assert self.of("sgdm", "b1") == {"b1": space.Range(0.5, 0.99, below_one=True)}

    def test_a_memory_keeps_its_number_where_b1_is_tuned(self):
        row = compare.rows(["adaxw"], {"adaxw": {"memory": "LogTime(8)"}})[0]
        assert row.tuned({"lr": 0.1, "b1": 0.5}).at(0.1, 50) == {
            "memory": "log_time", "betas": [0.5, 8], "lr": 0.1,
        }  # fmt: skip
        fading = compare.rows(["adaxw"], {"adaxw": {"memory": "Fading(0.99)"}})[0]
        assert fading.tuned({"b2": 0.95}).at(0.1, 50)["betas"] == [0.9, 0.95]
        growing = compare.rows(["adamw"], {"adamw": {"memory": "growing"}})[0]
        assert growing.tuned({"b2": 5.0}).at(0.1, 50)["betas"] == [0.9, 0.1]

    def test_a_range_of_ones_own_is_the_same_for_all(self):
        for method in ("adamw", "adaxw"):
            assert self.of(method, "lr=1e-4:0.3", "eps=1e-12:1e-6") == {
                "lr": space.Range(1e-4, 0.3), "eps": space.Range(1e-12, 1e-6),
            }  # fmt: skip
        assert self.of("torch:SGD", "momentum=0.5:0.99") == {"momentum": space.Range(0.5, 0.99, log=False)}
        assert self.of("adamw", "b2=0.9:0.999") == {"b2": space.Range(0.9, 0.999, below_one=True)}

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ([], "names no setting"),
            (
                ["momentum"],
                "has no default range (only lr, weight_decay, b1, b2 have); give one: momentum=0.1:0.9",
            ),
            (["lr", "lr=1:2"], "lr was given before"),
            (["lr=3"], "must be lr=low:high"),
            (["lr=3:1"], "low must be less than high"),
            (["lr=0:1"], "lr must be > 0"),
            (["lr=a:b"], "must be lr=low:high"),
        ],
    )
    def test_bad_words_are_one_line(self, words, message):
        with pytest.raises(LabError) as caught:
            study.Tuning(3, over=tuple(words))
        assert message in str(caught.value)

    def test_a_setting_that_nobody_has(self):
        with pytest.raises(LabError, match="nesterov: none of sgdm, adamw, adaxw has such an option"):
            small(over=("lr", "nesterov=0.1:0.9")).complete()
        with pytest.raises(LabError, match="sgdm has none of them; add lr"):
            small(over=("b2",)).complete()
        with pytest.raises(LabError, match="unknown sampler 'sobol'; known are qmc, random, tpe"):
            small(sampler="sobol")

    def test_a_study_of_lr_alone_is_written_as_before(self):
        plain = study.Tuning(3)
        assert plain.walks
        assert set(plain.data()) == {"trials", "seeds", "epochs", "first_seed"}
        for how in (small(), small(over=("lr",), sampler="random")):
            assert not how.tuning.walks
            assert study.Study.from_data(json.loads(json.dumps(how.complete().data()))) == how.complete()


@pytest.mark.parametrize("sampler", search.SAMPLERS)
class TestSamplers:
    def points(self, sampler, n, seed=3, quality=lambda p: -abs(math.log(p["a"] / 0.02))):
        pytest.importorskip("optuna")
        asking = search.sampled(RANGES, {"a": 0.1, "b": 0.5}, n, seed, sampler)
        found, asked = [], next(asking)
        while asked is not None:
            found += asked
            try:
                asked = asking.send([(quality(p), 0.0) for p in asked])
            except StopIteration:
                asked = None
        return found

    def test_the_first_is_the_optimizers_own_and_the_budget_is_kept(self, sampler):
        found = self.points(sampler, 14)
        assert found[0] == {"a": 0.1, "b": 0.5}
        assert len({tuple(p.values()) for p in found}) == 14
        assert all(1e-4 <= p["a"] <= 1 and 0 <= p["b"] <= 1 for p in found)

    def test_the_points_follow_from_seed_and_scores(self, sampler):
        first = self.points(sampler, 14)
        assert self.points(sampler, 14) == first
        assert self.points(sampler, 14, seed=4) != first
        other = self.points(sampler, 14, quality=lambda p: -p["b"])
        assert (other == first) is (sampler != "tpe")  # the one that learns from the scores

    def test_a_trial_that_diverged_is_the_worst_and_no_error(self, sampler):
        assert len(self.points(sampler, 14, quality=lambda p: -math.inf if p["a"] > 0.01 else p["a"])) == 14


def test_quasi_random_points_fill_the_space():
    """Of 16 scrambled Sobol points, each half, quarter and eighth of every axis gets its share."""
    points = TestSamplers().points("qmc", 17)[1:]
    for key, (low, high, log) in RANGES.items():
        scaled = [math.log(p[key] / low) / math.log(high / low) if log else p[key] for p in points]
        for parts in (2, 4, 8):
            counts = [sum(int(x * parts) == part for x in scaled) for part in range(parts)]
            assert max(counts) - min(counts) <= 2, (key, parts, counts)


def test_every_optimizer_has_the_same_budget_on_the_full_horizon(done):
    _, result = done
    steps = {"tune": 32, "final": 40}  # a fifth of the 90 rows is held out
    for row in ("sgdm", "adamw", "adaxw"):
        found = trials(result, row)
        assert [r.spec["trial"] for r in found] == [0, 1, 2, 3, 4]
        assert {r.spec["epochs"] for r in found} == {4}
        assert {r.done["steps"] for r in found} == {steps["tune"]}
        best = max(found, key=lambda r: search.score([r.done]))
        final, _ = [r for r in result.records if r.row == row and r.spec["purpose"] == "final"]
        chosen = {key: value for key, value in final.spec["options"].items() if key != "betas"}
        assert chosen == {key: value for key, value in best.spec["options"].items() if key != "betas"}
        b2 = [
            r.spec["options"]["betas"][1] * (r.done["steps"] if row == "adaxw" else 1) for r in (best, final)
        ]
        assert b2[0] == pytest.approx(b2[1], rel=1e-5)  # AdaX: the same b2*T, which is what was tuned


def test_the_first_trial_is_each_methods_own(done):
    own = {
        "sgdm": (1e-3, 1e-6),
        "adamw": (1e-3, 0.01),
        "adaxw": (5e-3, 0.05),
    }  # no decay is the smallest of the range
    for row, expected in own.items():
        options = trials(done[1], row)[0].spec["options"]
        assert (options["lr"], options["weight_decay"]) == expected
    assert trials(done[1], "adaxw")[0].spec["options"]["betas"] == [0.9, 3 / 32]


def test_the_settings_are_spread_and_sgdm_keeps_its_b2(done):
    for row, keys in {"sgdm": ("lr", "weight_decay"), "adamw": ("lr", "weight_decay", "betas")}.items():
        for key in keys:
            assert len({str(r.spec["options"][key]) for r in trials(done[1], row)}) == 5
    assert {r.spec["options"]["betas"][1] for r in trials(done[1], "sgdm")} == {0.0}


def test_repeating_it_runs_nothing(done):
    root, result = done
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*.json*")}
    assert compare.compare(small(), root).rows == result.rows
    assert {p: p.stat().st_mtime_ns for p in root.rglob("*.json*")} == before


def content(root):
    return {
        r.name: ({k: v for k, v in r.done.items() if k not in TIMES}, r.spec)
        for r in store.load_runs(root)
        if r.done
    }


@pytest.mark.parametrize(
    ("sampler", "number"), [("walk", "SIGINT"), ("qmc", "SIGKILL"), ("tpe", "SIGKILL"), ("tpe", "SIGINT")]
)
def test_stopped_at_any_write_and_started_again_it_ends_the_same(sampler, number, tmp_path):
    if sampler != "walk":
        pytest.importorskip("optuna")
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    driver = subprocess.run(
        [sys.executable, str(HERE / "kill_compare.py"), str(tmp_path), sampler, number, "5"],
        capture_output=True, text=True, env=environment, timeout=600,
    )  # fmt: skip
    assert driver.returncode == 0, driver.stderr
    assert json.loads(driver.stdout)["stopped"] == 8
    whole, killed = content(tmp_path / "whole"), content(tmp_path / "killed")
    assert len(whole) == 3 * (4 + 3)
    assert killed == whole


class TestWalk:
    def search(self, start, trials, quality):
        walking = search.walk(start, trials)
        tried = [next(walking)]
        try:
            while True:
                tried.append(walking.send((quality(tried[-1]), 0.0)))
        except StopIteration as end:
            return tried, end.value

    @pytest.mark.parametrize("start", [1e-3, 5e-3, 0.1])
    @pytest.mark.parametrize("best", [1e-4, 1e-3, 2e-2, 0.3])
    def test_finds_the_best_from_any_default(self, start, best):
        tried, found = self.search(start, 9, lambda lr: -abs(math.log(lr / best)))
        assert len(tried) == len(set(tried)) == 9  # the whole budget, nothing twice
        assert abs(math.log10(found / best)) < 0.2

    @pytest.mark.parametrize("trials", [1, 2, 3, 5, 12, 30])
    def test_budget_is_kept_whatever_is_found(self, trials):
        for quality in (lambda lr: lr, lambda lr: -lr, lambda lr: 0.0, lambda lr: -math.inf):
            tried, found = self.search(1e-3, trials, quality)
            assert len(set(tried)) == trials
            assert found in tried

    def test_goes_down_while_every_run_diverges(self):
        walking = search.walk(1e-3, 6)
        tried = [next(walking)]
        for _ in range(5):
            lr = tried[-1]
            tried.append(walking.send((-abs(math.log(lr / 2e-6)), 0.0) if lr < 5e-6 else search.WORST))
        assert tried == [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 3.16e-7]

    def test_starts_at_the_first_rate_and_brackets_by_decades(self):
        assert self.search(5e-3, 3, lambda lr: -abs(math.log(lr / 5e-3)))[0] == [5e-3, 5e-2, 5e-4]

    def test_refines_around_the_best_down_to_an_eighth_of_a_decade(self):
        tried, found = self.search(1e-3, 9, lambda lr: -abs(math.log(lr / 1.01e-3)))
        assert (tried, found) == (
            [1e-3, 1e-2, 1e-4, 3.16e-3, 3.16e-4, 1.78e-3, 5.62e-4, 1.33e-3, 7.5e-4],
            1e-3,
        )

    def test_of_equal_scores_the_first_is_chosen(self):
        assert self.search(1e-3, 6, lambda lr: 0.0)[1] == 1e-3

    def test_score_puts_diverged_last_and_breaks_ties_by_loss(self):
        def end(metric, loss, status="finished", higher=True):
            return {"metric": metric, "valid_loss": loss, "status": status, "higher_is_better": higher}

        good, tie, bad = (
            search.score([end(0.9, 0.1)]),
            search.score([end(0.9, 0.2)]),
            search.score([end(0.5, 0.0)]),
        )
        assert good > tie > bad > search.score([end(None, None, "diverged")]) == search.WORST
        assert search.score([end(0.9, 0.1), end(None, None, "diverged")]) == search.WORST
        assert search.score([end(0.1, 0.1, higher=False)]) > search.score([end(0.2, 0.1, higher=False)])


class TestPlan:
    def plan(self, tuning, base=0):
        if not tuning.walks:
            pytest.importorskip("optuna")
        made = with_base_seed(study.Study(f"{TINY}:Tiny", (study.Row("adaxw"),), tuning=tuning), base)
        planned = driver.plan(made.complete(), made.rows[0])
        return planned, next(planned)

    def tried(self, **more):
        return [spec["options"]["lr"] for spec in self.plan(study.Tuning(4, over=("lr", "b1")), **more)[1]]

    def test_another_base_seed_draws_other_points(self):
        assert self.tried() == self.tried()
        assert self.tried()[0] == self.tried(base=1)[0] == 5e-3  # the default
        assert not set(self.tried()[1:]) & set(self.tried(base=1)[1:])

    def test_of_equal_points_the_first_is_chosen(self):
        planned, asked = self.plan(study.Tuning(4, over=("lr", "b1")))
        end = {"status": "finished", "metric": 0.5, "valid_loss": 1.0, "higher_is_better": True}
        finals = planned.send([RunRecord(spec, {}, [], end, Path()) for spec in asked])
        assert {spec["options"]["lr"] for spec in finals} == {asked[0]["options"]["lr"]}

    def test_a_single_trial_is_at_the_default(self):
        assert self.plan(study.Tuning(1))[1][0]["options"]["lr"] == 5e-3
        assert self.plan(study.Tuning(2))[1][0]["options"]["lr"] == 1e-3  # the grid of all optimizers


def test_a_method_s_own_name_for_a_beta_is_tuned():
    """`momentum` of sgdm and of torch's SGD, as `--set` takes both."""
    made = study.Study(
        f"{TINY}:Tiny",
        (study.Row("sgdm"), study.Row("torch:SGD")),
        tuning=study.Tuning(3, over=("lr", "momentum=0.5:0.95")),
    ).complete()
    for row in made.rows:
        ranges = row.space(made.tuning.over)
        assert set(ranges) == {"lr", "momentum"}
        tuned = row.tuned({"lr": 0.1, "momentum": 0.75}).at(0.1, 10)
        assert space.value(row.method, tuned, "momentum") == 0.75
    assert made.rows[0].tuned({"momentum": 0.75}).options == {"betas": [0.75, 0.0]}
    assert space.point("sgdm", {}, made.rows[0].space(made.tuning.over))["momentum"] == 0.9


def test_a_weight_decay_above_1_is_inside_its_range():
    (span,) = space.of("adamw", {"weight_decay": 200}, space.parse(["weight_decay"])).values()
    assert span.low < 200 <= span.high
