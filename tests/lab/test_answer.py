"""The answer in words, what it would cost to know more, and the line of code that makes the winner."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from made_results import ADAMW, BETTER, LIKE, WORSE, moved, result

from adaxlab import summary
from adaxlab.answer import answer, constructor
from adaxlab.study import Tuning
from adaxopt import memories


def later(made):
    """The same results on the seeds of a repetition."""
    for record in made.records:
        record.spec["seed"] += 300_000
    return summary.summarise(replace(made.study, first_seed=300_000), made.records)


def test_a_tie_keeps_the_baseline_and_says_what_would_settle_it():
    found = answer(result(adamw=ADAMW, adaxw=LIKE, sgdm=WORSE))
    assert found.use == "adamw"
    assert found.text == (
        "Use adamw at lr 0.003: nothing else that was tried is significantly better. adaxw (lr 0.003) is not "
        "significantly different (+0.008, 95% [-0.014, +0.030], n = 5). sgdm (lr 0.003) is worse (-0.051, 95% "
        "[-0.060, -0.042], n = 5). Differences are in m; + is better. To decide between adamw and adaxw, repeat on "
        "fresh seeds: adax compare digits --optimizers adamw adaxw --seeds 42 --base-seed 1 --tune 2 (1.9 hours; 80% "
        "chance to find a difference of this size)."
    )
    assert found.code == (
        "import adaxopt; optimizer = adaxopt.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.999))"
    )


def test_what_would_settle_it_includes_the_tuning_and_has_a_limit():
    made = result(adamw=ADAMW, adaxw=LIKE)
    for record in made.records:
        if record.spec["purpose"] == "tune":
            record.done["seconds"] = 3600.0  # two trials of each
    found = answer(summary.summarise(made.study, made.records)).text
    assert found.endswith(
        "--seeds 42 --base-seed 1 --tune 2 (5.9 hours; 80% chance to find a difference of this size)."
    )
    assert "repeat" not in answer(later(made)).text  # not until there is a verdict
    close = answer(result(adamw=ADAMW, adaxw=moved(ADAMW, 0.02, -0.02, 0.02, -0.018, 0.01))).text
    assert "It would take more than 100 seeds (about 546) to decide between adamw and adaxw." in close


def test_what_is_better_is_used():
    found = answer(result(adamw=ADAMW, adaxw=BETTER, sgdm=LIKE))
    assert found.text == (
        "Use adaxw at lr 0.003: it is better than adamw (lr 0.003) by +0.051, 95% [+0.042, +0.060], n = 5. sgdm (lr "
        "0.003) is not significantly different from adamw (+0.008, 95% [-0.014, +0.030], n = 5). Differences are in "
        "m; + is better."
    )
    assert found.code.endswith("betas=(0.9, 0.006818181818181818))  # b2 = 3/T, T = 440 steps")


def test_a_plain_interval_without_zero_that_the_correction_undoes_is_explained():
    """p is 0.02 alone, and 0.06 as one of three."""
    apart = moved(ADAMW, 0.02, 0.02, 0.01, 0.03, 0.0)
    found = answer(result(adamw=ADAMW, adaxw=apart, sgdm=LIKE, adam=LIKE)).text
    assert (
        "adaxw (lr 0.003) is not significantly different (+0.016, 95% [+0.002, +0.030], n = 5; significant "
        "alone, but not after the correction for 3 comparisons)" in found
    )
    alone = answer(result(adamw=ADAMW, adaxw=apart))
    assert alone.use == "adaxw"
    assert "comparisons" not in alone.text
    assert answer(result(adamw=ADAMW, adaxw=LIKE)).text.startswith(
        "Use adamw at lr 0.003: the other is not significantly better."
    )


def test_of_two_that_are_better_the_best_mean_is_used():
    found = answer(result(adamw=ADAMW, adaxw=BETTER, sgdm=moved(BETTER, 0.01, 0.012, 0.01, 0.01, 0.01)))
    assert found.use == "sgdm"
    assert "adaxw is better than adamw as well." in found.text


def test_lower_is_better_for_a_loss():
    assert answer(result(adamw=ADAMW, adaxw=WORSE, higher=False)).use == "adaxw"


def test_few_seeds_are_provisional_or_decide_nothing():
    assert "Provisional: n = 3, fewer than 5 seeds." in answer(result(adamw=ADAMW[:3], adaxw=BETTER[:3])).text
    none = answer(result(adamw=ADAMW[:2], adaxw=BETTER[:2]))
    assert (none.use, none.code) == ("", "")
    assert none.text.startswith("No verdict: n = 2: a verdict needs 3 seeds or more")


def test_defaults_that_nobody_tuned_give_no_verdict():
    none = answer(result(adamw=ADAMW, adaxw=BETTER, tuned=False, given=False))
    assert none.use == ""
    assert "No verdict: learning rates were not tuned" in none.text
    assert "--set adamw.lr=... adaxw.lr=..." in none.text
    given = answer(result(adamw=ADAMW, adaxw=BETTER, tuned=False))
    assert given.use == "adaxw"
    assert "The verdicts hold at the given settings" in given.text


@pytest.mark.parametrize(
    ("tuning", "how"), [(Tuning(1), "--tune 8"), (Tuning(8, over=("weight_decay",)), "add lr to --tune-over")]
)
def test_tuning_without_a_second_lr_gives_no_verdict(tuning, how):
    found = result(adamw=ADAMW, adaxw=BETTER)
    untuned = replace(found.study, tuning=tuning)
    none = answer(summary.summarise(untuned, found.records))
    assert none.use == ""
    assert (
        f"learning rates were not tuned, so a difference may be one of defaults. Tune them ({how})"
        in none.text
    )
    given = replace(untuned, rows=tuple(replace(row, options={"lr": 3e-3}) for row in untuned.rows))
    assert "The verdicts hold at the given settings" in answer(summary.summarise(given, found.records)).text


def test_an_lr_at_the_edge_of_those_tried_is_part_of_the_answer():
    found = result(adamw=ADAMW, adaxw=BETTER)
    words = (
        "the smallest or the largest that was tried: a larger --tune, on fresh seeds (--base-seed 1), may find a "
        "better one."
    )
    assert words not in answer(found).text
    for record in found.records:
        if record.row == "adamw" and record.spec["purpose"] == "final":
            record.spec["options"]["lr"] = 0.1
    assert f"The best lr of adamw is {words}" in answer(summary.summarise(found.study, found.records)).text


def test_settings_at_an_end_of_their_range_are_part_of_the_answer():
    found = result(adamw=ADAMW, adaxw=BETTER)
    wide = Tuning(2, over=("lr=1e-4:3e-3", "weight_decay=1e-3:1"))
    for record in found.records:
        record.spec["options"]["weight_decay"] = 1e-3 if record.row == "adaxw" else 0.1
    ended = summary.summarise(replace(found.study, tuning=wide), found.records)
    assert [row.edge for row in ended.rows] == [("lr",), ("lr", "weight_decay")]
    assert (
        "At an end of the range: lr of adamw; lr and weight_decay of adaxw. A wider --tune-over, on fresh seeds "
        "(--base-seed 1), may find better values." in answer(ended).text
    )
    once = replace(found.study, tuning=replace(wide, trials=1))  # nothing was chosen
    assert [row.edge for row in summary.summarise(once, found.records).rows] == [(), ()]
    inside = replace(found.study, tuning=replace(wide, over=("lr", "weight_decay=1e-4:1")))
    assert [row.edge for row in summary.summarise(inside, found.records).rows] == [(), ()]


def test_runs_of_other_seeds_are_no_part_of_the_study():
    found = result(adamw=ADAMW, adaxw=BETTER)
    fewer = summary.summarise(replace(found.study, seeds=3), found.records)
    assert [row.n for row in fewer.rows] == [3, 3]


def test_later_changes_are_part_of_the_answer():
    history = ("Extended from 3 to 5 seeds after a look at the results.",)
    found = answer(result(adamw=ADAMW, adaxw=LIKE, history=history)).text
    assert found.endswith(history[0])


def test_the_line_of_code_names_the_schedule():
    made = result(adamw=ADAMW, adaxw=LIKE)
    for record in made.records:
        record.spec["schedule"] = {"name": "cosine", "warmup": 0.1, "final": 0.0}
    assert answer(made).code.endswith("  # with the schedule cosine,warmup=0.1")


def test_more_seeds_are_not_proposed_where_runs_diverged():
    found = answer(result(adamw=ADAMW, adaxw=(None, 0.92, 0.88, 0.91, 0.92))).text
    assert "adaxw (lr 0.003) is not significantly different (where both finished: +0.003, " in found
    assert "n = 4); 1 of 5 runs diverged." in found
    assert "--seeds" not in found


def test_a_baseline_that_diverges_more_often_is_not_recommended():
    found = answer(result(adamw=(None, None, 0.9, 0.91, 0.92), adaxw=LIKE, sgdm=WORSE))
    assert (found.use, found.code) == ("", "")
    assert found.text.startswith(
        "No clear answer: 2 of 5 runs of adamw (lr 0.003) diverged, and nothing that diverged less often is "
        "significantly better; a repetition may decide: adax compare digits --optimizers adamw adaxw sgdm "
        "--seeds 10 --base-seed 1 --tune 2. adaxw (lr 0.003) is not significantly different ("
    )
    assert "repetition" not in answer(later(result(adamw=(None, None, 0.9, 0.91, 0.92), adaxw=LIKE))).text
    better = answer(result(adamw=(None, None, *ADAMW[2:]), adaxw=BETTER))
    assert better.text.startswith(
        "Use adaxw at lr 0.003: it is better than adamw (lr 0.003; 2 of 5 runs diverged); where both finished: +0.048, "
        "95% [+0.029, +0.067], n = 3."
    )
    both = answer(result(adamw=(None, 0.91, 0.9, 0.91, 0.92), adaxw=(None, None, *LIKE[2:])))
    assert both.use == "adamw"


def test_significant_alone_is_not_said_of_a_test_with_diverged_runs():
    """Its interval is of other data: that of the seeds on which both finished."""
    apart = (None, *moved(ADAMW[1:], -0.02, -0.02, -0.015, -0.025))
    made = result(adamw=ADAMW, adaxw=apart, sgdm=LIKE, adam=LIKE)
    verdict = made.row("adaxw").verdict
    assert verdict.own < 0.05 < verdict.p
    assert "significant alone" not in answer(made).text


def test_where_all_tuning_diverged_the_answer_says_what_to_do():
    made = result(adamw=(None,) * 5, adaxw=(None,) * 5)
    for record in made.records:
        record.done.update(status="diverged", metric=None)
    found = summary.summarise(made.study, made.records)
    assert answer(found).text == (
        "No verdict: every tuning run of adamw diverged (lr 0.1 to 1); every tuning run of adaxw diverged (lr 0.1 to "
        "1). Check that loss, gradients and m are finite, or start lower, such as with --set adamw.lr=1e-3 "
        "adaxw.lr=1e-3."
    )
    assert [row.edge for row in found.rows] == [(), ()]


@pytest.mark.parametrize("lost", ["adamw", "adaxw"])
def test_where_the_tuning_of_one_diverged_the_advice_is_about_that_one(lost):
    made = result(adamw=(None,) * 5 if lost == "adaxw" else ADAMW, adaxw=LIKE)
    for record in made.records:
        if record.row == lost:
            record.done.update(status="diverged", metric=None)
    assert answer(summary.summarise(made.study, made.records)).text == (
        f"No verdict: every tuning run of {lost} diverged (lr 0.1 to 1). Check that loss, gradients and m are finite, "
        f"or start lower, such as with --set {lost}.lr=1e-3."
    )


def test_of_several_better_ones_one_that_never_diverged_is_used():
    often = tuple(value + 0.06 for value in ADAMW)
    made = result(adamw=(None,) * 5, adaxw=(None, *often[1:]), sgdm=BETTER)
    assert {row.name: row.verdict.outcome for row in made.rows[1:]} == {"adaxw": "better", "sgdm": "better"}
    found = answer(made)
    assert found.use == "sgdm"
    assert found.text.startswith(
        "Use sgdm at lr 0.003: it is better than adamw (lr 0.003; 5 of 5 runs diverged). adaxw is better"
    )


def test_a_margin_is_not_a_correction():
    made = result(adamw=ADAMW, adaxw=BETTER, sgdm=LIKE)
    wide = replace(made.study, rule=replace(made.study.rule, margin=0.05))
    found = answer(summary.summarise(wide, made.records)).text
    assert found.startswith(
        "Use adamw at lr 0.003: nothing else that was tried is significantly better by more than 0.05. adaxw (lr "
        "0.003) is not significantly better or worse by more than 0.05 (+0.051, 95% [+0.042, +0.060], n = 5). sgdm (lr "
    )
    assert "significant alone" not in found


@pytest.mark.parametrize(
    ("values", "margin", "said"),
    [
        (
            BETTER,
            0.04,
            "it is better than adamw (lr 0.003) by more than 0.04: +0.051, 95% [+0.042, +0.060], n = 5.",
        ),
        (WORSE, 0.04, "adaxw (lr 0.003) is worse by more than 0.04 (-0.051, 95% [-0.060, -0.042], n = 5)."),
    ],
)
def test_a_verdict_names_its_margin(values, margin, said):
    made = result(adamw=ADAMW, adaxw=values)
    wide = replace(made.study, rule=replace(made.study.rule, margin=margin))
    assert said in answer(summary.summarise(wide, made.records)).text


@pytest.mark.parametrize(
    ("values", "margin"),
    [(LIKE, 0.01), (moved(ADAMW, -0.02, 0.01, -0.03, 0.01, -0.01), 0.0)],
    ids=["within the margin", "below the baseline"],
)
def test_nothing_is_proposed_that_could_not_change_the_recommendation(values, margin):
    made = result(adamw=ADAMW, adaxw=values)
    wide = replace(made.study, rule=replace(made.study.rule, margin=margin))
    found = answer(summary.summarise(wide, made.records)).text
    assert not any(word in found for word in ("To decide", "It would take"))


def test_the_repetition_is_a_command_that_works_whatever_the_study_was_named_and_set():
    lab = pytest.importorskip("adaxlab.commands")
    made = result(adamw=ADAMW, adaxw=LIKE, sgdm=WORSE)
    rows = [replace(row, options={"weight_decay": 0.1}) for row in made.study.rows]
    named = replace(made.study, rows=tuple(rows), name="mine", epochs=3)
    found = answer(summary.summarise(named, made.records)).text
    words = found.partition("fresh seeds: adax ")[2].partition(" (")[0].split()
    again = lab.parse(words).of("digits", False).complete()
    assert [row.name for row in again.rows] == ["adamw", "adaxw"]
    assert (again.seeds, again.first_seed, again.epochs, again.tuning.trials) == (42, 100_000, 3, 2)
    assert again.name != "mine"


def test_tuning_that_found_no_rate_gives_no_verdict():
    made = result(adamw=ADAMW, sgdm=LIKE, adaxw=(None,) * 5)
    for record in made.records:
        if record.row == "adaxw" and record.spec["purpose"] == "tune":
            record.done.update(status="diverged", metric=None)
    found = answer(summary.summarise(made.study, made.records)).text
    assert "adaxw has no verdict: every tuning run of adaxw diverged (lr 0.1 to 1)." in found


def test_runs_that_diverged_are_counted():
    found = answer(result(adamw=ADAMW, adaxw=(None, None, 0.99, None, None))).text
    assert "adaxw (lr 0.003) is worse; 4 of 5 runs diverged." in found
    nothing = answer(result(adamw=(None,) * 5, adaxw=(None,) * 5))
    assert (nothing.use, nothing.text) == (
        "",
        "No verdict: every run of adamw diverged, and nothing is significantly better.",
    )


def test_a_failed_optimizer_has_no_verdict():
    made = result(adamw=ADAMW, adaxw=BETTER, sgdm=LIKE)
    broken = [replace(r, done=None, error="no") if r.row == "sgdm" else r for r in made.records]
    found = answer(summary.summarise(made.study, broken)).text
    assert "sgdm failed and has no verdict." in found
    base = [replace(r, done=None, error="no") if r.row == "adamw" else r for r in made.records]
    assert answer(summary.summarise(made.study, base)).text == (
        "No verdict: adamw, which the others are compared with, failed."
    )


def test_alone_there_is_nothing_to_compare():
    found = answer(result(adamw=ADAMW))
    assert (found.use, found.text) == (
        "",
        "Only adamw ran, at lr 0.003: there is nothing to compare it with.",
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adaxw", {"lr": 0.005, "betas": [0.9, 0.0068], "eps": 1e-12, "weight_decay": 0.05}),
        ("sgdm", {"lr": 0.1, "betas": [0.9, 0.0]}),
        ("torch:AdamW", {"lr": 0.01, "betas": [0.9, 0.95]}),
        ("torch.optim:NAdam@own", {"lr": 0.01}),
        ("adaxw", {"lr": 0.01, "betas": [0.9, 0.007], "state_dtype": "bfloat16"}),
        ("adaxw", {"lr": 0.01, "betas": [0.8, 8], "memory": "log_time floor 0.001 freeze 500"}),
        ("adamw", {"lr": 0.01, "betas": [0.9, 0.0], "memory": "equal"}),
        pytest.param(
            "muon+adaxw",
            {"lr": 0.01, "betas": [0.9, 0.007]},
            marks=pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon"),
        ),
    ],
)
def test_the_line_of_code_runs_and_makes_that_optimizer(name, options):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    space = {"model": model}
    exec(constructor(name, options), space)
    made = space["optimizer"]
    assert made.param_groups[0]["lr"] == options["lr"]
    if len(made.param_groups) == 1 and "betas" in options:
        assert list(made.param_groups[0]["betas"]) == options["betas"]
    if "memory" in options:
        assert "memory=adaxopt." in constructor(name, options)
        made, wanted = (memories.read(text) for text in (made.param_groups[0]["memory"], options["memory"]))
        assert made == wanted


def test_equal_differences_are_not_called_significant():
    """Without spread there is no t test: the interval is a point, and excludes 0."""
    shifted = moved(ADAMW, *[-0.0022] * 5)
    found = answer(result(adamw=ADAMW, adaxw=shifted, sgdm=WORSE))
    assert "no test: all differences are equal" in found.text
    assert "significant alone" not in found.text
