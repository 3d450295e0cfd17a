"""Fair comparison: equal budgets, held-out tuning, fresh seeds, work that can be shared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small_study import TINY, final, small

from adaxlab import (
    compare,
    driver,
    stats,
    store,
    study,
    study_file,
    table,
    verdict,
)
from adaxlab.answer import answer
from adaxlab.errors import LabError, StoreError
from adaxlab.execute import process
from adaxlab.stats import DecisionRule
from adaxlab.variants import with_base_seed


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return root, compare.compare(small(), root)


class TestStudy:
    def test_equal_budgets_and_fresh_seeds(self, done):
        root, result = done
        records = store.load_runs(root)
        assert len(records) == len(result.records) == 2 * (3 + 3)
        for optimizer in ("sgdm", "adaxw"):
            tuning = [r for r in records if r.spec["optimizer"] == optimizer and r.spec["purpose"] == "tune"]
            final = [r for r in records if r.spec["optimizer"] == optimizer and r.spec["purpose"] == "final"]
            assert sorted(r.spec["trial"] for r in tuning) == [0, 1, 2]
            assert len({r.spec["options"]["lr"] for r in tuning}) == 3
            assert {r.done["split"] for r in tuning} == {"valid"}
            assert {r.done["split"] for r in final} == {"test"}
            assert not {r.spec["seed"] for r in tuning} & {r.spec["seed"] for r in final}
            best = max(tuning, key=lambda r: (r.done["metric"], -r.done["valid_loss"]))
            assert {r.spec["options"]["lr"] for r in final} == {best.spec["options"]["lr"]}

    def test_the_search_starts_at_the_power_of_ten_below_the_default(self, done):
        """So that all optimizers try rates of one grid."""
        first = {
            r.spec["optimizer"]: r.spec["options"]["lr"] for r in done[1].records if r.spec["trial"] == 0
        }
        assert first == {"sgdm": 1e-3, "adaxw": 1e-3}

    def test_rows_by_hand(self, done):
        result = done[1]
        final = {
            o: {r.spec["seed"]: r.done["metric"] for r in result.records if r.spec["purpose"] == "final"
                and r.spec["optimizer"] == o} for o in ("sgdm", "adaxw")
        }  # fmt: skip
        sgdm, adaxw = result.rows
        assert sgdm.verdict is None  # the baseline: the first, as adamw takes no part
        assert adaxw.estimate.mean == pytest.approx(sum(final["adaxw"].values()) / 3)
        assert adaxw.verdict.difference.mean == pytest.approx(
            sum(final["adaxw"][s] - final["sgdm"][s] for s in range(3)) / 3
        )
        assert (adaxw.n, len(adaxw.trials), adaxw.diverged) == (3, 3, 0)

    def test_repeating_it_runs_nothing_and_says_the_same(self, done):
        root, result = done
        before = {p: p.stat().st_mtime_ns for p in root.rglob("*.json*")}
        again = compare.compare(small(), root)
        assert again.rows == result.rows
        assert {p: p.stat().st_mtime_ns for p in root.rglob("*.json*")} == before

    def test_seeds_and_optimizers_may_grow(self, tmp_path):
        plain = small(tune=0, seeds=1)
        compare.compare(plain, tmp_path)
        more = compare.compare(small(tune=0, seeds=2, optimizers=("sgdm", "adaxw", "adam")), tmp_path)
        assert len(more.records) == 6
        assert {r.done["sessions"] for r in more.records} == {1}

    def test_what_is_changed_after_a_look_is_recorded(self, tmp_path):
        def stored():
            return json.loads((tmp_path / "small" / "study.json").read_text()).get("history")

        names = ("sgdm", "adaxw", "adam")
        study_file.write(small(tune=0, seeds=1).complete(), tmp_path)
        assert compare.compare(small(tune=0, seeds=3), tmp_path).history == ()  # nothing had been seen
        assert stored() is None
        assert compare.compare(small(tune=0, seeds=3), tmp_path).history == ()
        extended = compare.compare(small(tune=0, seeds=5), tmp_path)
        assert extended.history == ("Extended from 3 to 5 seeds after a look at the results.",)
        assert extended.history[0] in " ".join(text_of(table.comparison(extended)).split())
        later = compare.compare(small(tune=0, seeds=5, optimizers=names, baseline="adam"), tmp_path)
        assert later.history == (
            *extended.history,
            "The baseline was changed from sgdm to adam after a look at the results.",
            "adam was added after a look at the results.",
        )
        assert later.history[-1] in answer(later).text
        fewer = compare.compare(small(tune=0, seeds=4, optimizers=names, baseline="adam"), tmp_path)
        assert fewer.history[-1] == "Cut from 5 to 4 seeds after a look at the results."
        assert stored()[0] == {"changed": "seeds", "before": 3, "after": 5}

    @pytest.mark.parametrize(
        "change",
        [
            {"name": "other"},
            {"tune": 4},
            {"rule": DecisionRule(margin=0.1)},
            {"options": {"sgdm": {"lr": 1.0}}},
        ],
    )
    def test_another_study_on_the_same_seeds_says_so(self, change, tmp_path):
        plain = small(name="", tune=3)
        first = compare.compare(plain, tmp_path)
        assert first.history == ()
        second = compare.compare(small(**{"name": "", "tune": 3, **change}), tmp_path)
        assert second.study.name != first.study.name
        assert second.history == (
            f"Study {first.study.name} had results on this task and some of these seeds before this study was created.",
        )
        assert second.history[0] in answer(second).text
        assert compare.compare(plain, tmp_path).history == ()

    def test_another_study_on_fresh_seeds_or_before_any_result_says_nothing(self, tmp_path):
        compare.compare(small(name="", seeds=1), tmp_path)
        assert compare.compare(with_base_seed(small(name=""), 1), tmp_path).history == ()
        study_file.write(small(name="begun", first_seed=50).complete(), tmp_path)
        tuned = small(name="begun", first_seed=50).complete()
        for row in tuned.rows:  # tuning alone is no look at the results
            for spec in tuned.trials(row, 0.1, 0):
                process.run(spec, tmp_path)
        assert compare.compare(small(name="later", first_seed=50), tmp_path).history == ()

    def test_a_target_changes_no_study(self, tmp_path):
        plain = compare.compare(small(tune=0, seeds=1, name=""), tmp_path)
        aimed = compare.compare(small(tune=0, seeds=1, name="", target=0.4), tmp_path)
        assert (aimed.study.name, aimed.target, aimed.history) == (plain.study.name, 0.4, ())
        assert all(time is not None for row in aimed.rows for time in row.steps_to)

    def test_the_rule_is_on_disk_before_the_first_run_and_cannot_change(self, tmp_path):
        written = []

        class Watch(driver.Silent):
            def running(self, spec, step, total, metric):
                written.append(json.loads((tmp_path / "small" / "study.json").read_text()))

        given = small(tune=0, seeds=1, rule=stats.DecisionRule(margin=0.1))
        compare.compare(given, tmp_path, watcher=Watch())
        assert written[0]["rule"] == {
            "confidence": 0.95, "margin": 0.1, "least": 3, "correction": "holm",
        }  # fmt: skip
        assert (written[0]["baseline"], [row["name"] for row in written[0]["rows"]]) == (
            "sgdm",
            ["sgdm", "adaxw"],
        )
        with pytest.raises(
            LabError, match=r"small: rule: margin was 0\.1 and cannot become 0\.0; choose another"
        ):
            compare.compare(small(tune=0, seeds=1), tmp_path)
        with pytest.raises(LabError, match="epochs was 2 and cannot become 3"):
            compare.compare(small(tune=0, seeds=1, epochs=3, rule=stats.DecisionRule(margin=0.1)), tmp_path)
        with pytest.raises(
            LabError,
            match=r"options of sgdm was \{\} and cannot become \{'lr': 0.5\}; choose another --study",
        ):
            compare.compare(replace(given, rows=small(options={"sgdm": {"lr": 0.5}}).rows), tmp_path)

    def test_a_study_of_another_version_is_left_alone(self, tmp_path):
        (tmp_path / "small").mkdir()
        (tmp_path / "small" / "study.json").write_text('{"schema": 7}')
        with pytest.raises(StoreError, match="study of another version; left untouched"):
            compare.compare(small(), tmp_path)
        assert (tmp_path / "small" / "study.json").read_text() == '{"schema": 7}'

    def test_names_made_from_settings_tell_studies_apart(self):
        def name(**changes):
            return small(name="", **changes).complete().name

        assert name() == name(seeds=9) == name(optimizers=("adam",))
        assert len({name(), name(epochs=3), name(tune=0), name(rule=stats.DecisionRule(margin=0.1))}) == 4
        assert name().startswith("Tiny-tuned-")

    def test_data_and_back(self):
        full = small(options={"adaxw": {"betas": (0.9, 1e-3)}}).complete()
        again = study.Study.from_data(json.loads(json.dumps(full.data())))
        assert again.data() == full.data()
        assert final(again, "adaxw", 0) == final(full, "adaxw", 0)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"optimizers": ()}, "no optimizer given"),
            ({"optimizers": ("adam", "adam")}, "named twice"),
            ({"options": {"adamw": {"lr": 1}}}, "unknown optimizer in --set 'adamw'; known are sgdm, adaxw"),
            ({"options": {"adaxw": {"beta": 1}}}, "beta"),
            ({"seeds": 0, "tune": 0}, "seeds=0: must be >= 1"),
            ({"tune": -1}, "trials=-1: must be >= 1"),
            ({"baseline": "adam"}, "unknown baseline 'adam'; known are sgdm, adaxw"),
            ({"schedule": "cos"}, "unknown schedule 'cos'"),
            ({"name": "a/b/c"}, "study='a/b/c': must be letters"),
            ({"epochs": -1}, "epochs=-1: must be a whole number >= 1"),
        ],
    )
    def test_bad_input_before_any_run(self, changes, words, tmp_path):
        with pytest.raises(LabError) as caught:
            compare.compare(small(**changes), tmp_path)
        assert words in str(caught.value)
        assert not list(tmp_path.rglob("spec.json"))


def test_diverged_runs_are_shown_and_never_better(tmp_path):
    given = small(task=f"{TINY}:Explodes", tune=0, options={"sgdm": {"lr": 1e-12}, "adaxw": {"lr": 1e12}})
    result = compare.compare(given, tmp_path)
    sgdm, adaxw = result.rows
    assert (sgdm.diverged, adaxw.diverged) == (0, 3)
    assert adaxw.estimate is None
    assert (adaxw.verdict.outcome, adaxw.verdict.word) == ("worse", "worse (provisional)")
    assert "3 diverged" in text_of(table.comparison(result))


def text_of(what, width=150):
    from rich.console import Console

    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(what)
    console.file.close()
    return console.export_text()


def test_the_table_says_n_interval_and_verdict(done):
    text = " ".join(text_of(table.comparison(done[1])).split())
    for words in (
        "sgdm",
        "adaxw",
        "±",
        "baseline",
        "the best of 3 per optimizer",
        "fixed before the runs",
        "(Holm)",
        "Provisional: fewer than 5 seeds.",
    ):
        assert words in text, words
    assert max(map(len, text_of(table.comparison(done[1]), 80).splitlines())) <= 80


def test_long_names_fold_and_no_number_is_cut(done):
    name = "some.module.of.mine:AnOptimizerOfMine"
    result = replace(done[1], rows=[replace(row, name=name) for row in done[1].rows])
    named = tuple(replace(row, name=f"{name}@{i}") for i, row in enumerate(result.study.rows))
    result = replace(result, study=replace(result.study, rows=named, baseline=f"{name}@0"))
    text = text_of(table.comparison(result), 80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    for row in result.rows:
        assert any(
            f"{row.lr:.3g}" in line and table.spread(row.estimate) in line for line in text.splitlines()
        )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "the documented default of each optimizer; not tuned"),
        ({"sgdm": {"lr": 0.5}}, "as given for sgdm, the documented default for the others; not tuned"),
        ({"sgdm": {"lr": 0.5}, "adaxw": {"lr": 1e-2}}, "as given for sgdm, adaxw; not tuned here"),
        ({"sgdm": {"momentum": 0.5}}, "the documented default of each optimizer"),
    ],
)
def test_the_caption_says_where_the_lr_is_from(done, options, expected):
    rows = compare.rows(("sgdm", "adaxw"), options)
    result = replace(done[1], study=replace(done[1].study, tuning=None, rows=rows))
    text = " ".join(text_of(table.comparison(result)).split())
    assert expected in text
    assert ("Verdicts hold at the given settings." in text) == (len(options) == 2)


@pytest.mark.parametrize(("options", "b2_steps"), [({}, 3.0), ({"adaxw": {"betas": (0.9, 1e-2)}}, 0.12)])
def test_b2_follows_from_the_length_of_the_run_unless_it_is_set(options, b2_steps, tmp_path):
    given = small(options=options, seeds=1, tune=2, optimizers=("adamw", "adaxw"))
    result = compare.compare(given, tmp_path)
    adamw, adaxw = result.rows
    assert adamw.b2_steps is None
    assert adaxw.b2_steps == pytest.approx(b2_steps)
    for record in (r for r in result.records if r.row == "adaxw"):  # of tuning runs as well: they are shorter
        expected = 1e-2 if options else 3 / record.done["steps"]
        assert record.spec["options"]["betas"] == pytest.approx([0.9, expected], rel=1e-5)
    text = " ".join(text_of(table.comparison(result)).split())
    assert "b2*T" in text
    assert f"{b2_steps:.2g}" in text
    assert ("b2*T of adaxw is below 1" in text) == bool(options)


MEMORIES = {
    "Fading(0.99)": ("fading", 0.99),
    "LogTime(8)": ("log_time", 8),
    "Equal()": ("equal", 0.0),
    "equal": ("equal", 0.0),
    "Growing(0.01)": ("growing", 0.01),
    "growing": ("growing", None),  # 3/T
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("name", ["adaxw", "adamw"])
def test_a_memory_keeps_its_number(name, memory, tmp_path):
    """3/T is the rate of growth of a growing memory, and of no other."""
    text, number = MEMORIES[memory]
    given = small(options={name: {"memory": memory}}, seeds=1, tune=0, optimizers=("sgdm", name))
    result = compare.compare(given, tmp_path)
    row = result.rows[1]
    steps = row.runs[0].done["steps"]
    wanted = 3 / steps if number is None else number
    for record in (r for r in result.records if r.row == name):
        assert record.spec["options"]["memory"] == text
        assert record.spec["options"]["betas"] == pytest.approx([0.9, wanted], rel=1e-5)
    assert row.b2_steps == (pytest.approx(wanted * steps, rel=1e-5) if text == "growing" else None)
    alone = replace(
        result, rows=result.rows[1:], study=replace(result.study, rows=given.rows[1:], baseline=name)
    )
    assert ("/T" in answer(alone).code) == (text == "growing")


def test_equal_differences_are_remarked_on(done):
    result = done[1]
    for differences, said in (([0.97 - 0.95, 0.96 - 0.94, 0.02], True), ([0.02, 0.021, 0.022], False)):
        values = {"sgdm": dict.fromkeys(range(3), 0.0), "adaxw": dict(enumerate(differences))}
        judged = verdict.verdicts(values, "sgdm", result.study.rule)
        rows = [replace(row, verdict=judged.get(row.name)) for row in result.rows]
        text = " ".join(text_of(table.comparison(replace(result, rows=rows))).split())
        assert ("all differences are equal" in text) is said
