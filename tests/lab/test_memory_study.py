"""The rule of the memory study, from made runs: ranges, the memories and settings of the final runs, the decision."""

import math
import statistics
from pathlib import Path

import made_memory
import made_records
import pytest
from made_memory import CHOSEN, RATES, SCREEN

from adaxlab import records, stats
from adaxlab.judge import judge
from adaxlab.paper import memory, memory_finals, memory_rule
from adaxlab.paper.memory_finals import CIFAR, FINALS, GPT, TASKS
from adaxlab.paper.tables import memory_study as page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def screen():
    return made_memory.screen()


@pytest.fixture(scope="module")
def final():
    return made_memory.final()


def test_the_three_with_the_widest_range_are_chosen(screen):
    assert len(screen) == 16
    assert memory_rule.chosen(screen, 0.02, higher=False) == CHOSEN


def test_of_equal_ranges_the_better_result_is_chosen(screen):
    narrow = {
        name: tried for name, tried in screen.items() if name not in ("asymmetric 0.3", "polynomial 0.8")
    }
    assert memory_rule.chosen(narrow, 0.02, higher=False)[:2] == ["log-time 8", "growing b2T=10"]


def test_the_settings_of_the_final_runs(final):
    assert list(final.rates) == [*memory_rule.KEPT, *CHOSEN]
    assert final.above == RATES[3]  # three rates are in the range of fading 0.95
    assert final.covers == tuple(list(final.rates)[1:])


def test_a_range_that_is_only_moved_does_not_cover_that_of_the_first(screen):
    moved = {**screen, "log-time 8": dict(zip(RATES, [1.4, 1.3, 1.3, 1.3, 1.3, None], strict=True))}
    final = memory_rule.final(moved, tuple(CHOSEN), 0.02, higher=False)
    assert final.covers == ("fading 0.999", "growing b2T=3", "asymmetric 0.3", "polynomial 0.8")


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([None] * 6, "diverged at every lr"),
        ([1.31, *[1.3] * 5], "reaches the largest lr, 0.0096: screen larger ones"),
        ([1.3, *[1.4] * 5], "best at the smallest lr, 0.0003: screen smaller ones"),
    ],
)
def test_a_screen_without_an_end_gives_no_settings(screen, results, message):
    changed = {**screen, memory_rule.KEPT[0]: dict(zip(RATES, results, strict=True))}
    with pytest.raises(ValueError, match=message):
        memory_rule.final(changed, (), 0.02, higher=False)
    assert message in memory_rule.unfinished(changed, 0.02, higher=False)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.title)
def test_the_final_runs_are_those_of_the_screen_at_the_chosen_rates(task, final):
    _, best, wide = memory_finals.studies(task, final)
    assert (best.seeds, best.tuning, len(best.rows), len(wide.rows)) == (task.seeds, None, 6, 7)
    tuned = set(task.screen.tuning.all_seeds)
    assert not tuned & set(best.all_seeds)
    for row in best.rows:
        screened = task.screen.row(row.name)
        assert row.lr() == final.rates[row.name]
        assert (row.optimizer, row.b2_steps, row.lr_decay) == (
            screened.optimizer,
            screened.b2_steps,
            screened.lr_decay,
        )
    assert wide.rows[0] == best.row("fading 0.95")
    for row in wide.rows[1:]:
        assert row.options["lr"] == final.above
        assert row.optimizer == best.row(row.name.removesuffix(f", lr {final.above:g}")).optimizer
    assert best.task_options == {k: v for k, v in task.screen.task_options.items() if k != "holdout"}
    assert best.schedule == task.screen.schedule
    assert best.epochs == task.screen.epochs


def test_memories_with_a_length_have_that_of_the_final_runs(screen):
    lasting = ("growing b2T=3, floor 10/T", "fading 0.999, frozen after T/10")
    _, best, _ = memory_finals.studies(CIFAR, memory_rule.final(screen, lasting, 0.02, higher=False))
    assert CIFAR.steps == 391 * 60
    assert best.row(lasting[0]).options["memory"] == f"growing floor {10 / CIFAR.steps:.6g}"
    assert best.row(lasting[1]).options["memory"] == f"fading freeze {CIFAR.steps // 10}"


def test_the_claims_judge_the_final_runs(final):
    """asymmetric 0.3 is worse at its best lr, and within the tolerance at the larger one; log-time 8 and fading 0.95
    are not, and every run of polynomial 0.8 diverges there."""
    large = f", lr {final.above:g}"
    levels = {
        "asymmetric 0.3": 1.31,
        f"asymmetric 0.3{large}": 1.312,
        f"log-time 8{large}": 1.4,
        f"fading 0.95{large}": 1.4,
    }

    def loss(row, seed, i):
        if row.name == f"polynomial 0.8{large}":
            return None
        return levels.get(row.name, 1.3) + 0.0001 * (seed % 3) * (1 + i % 2)

    made = [
        made_records.run(
            study.name, row.name, loss(row, seed, i), seed=seed, lr=row.lr(), higher=False,
        )
        for study in memory_finals.studies(GPT, final)[1:]
        for i, row in enumerate(study.rows)
        for seed in range(300, 305)
    ]  # fmt: skip
    verdicts = {row["id"]: row["verdict"] for row in judge(memory_finals.claims(GPT, final), made)}
    assert len(verdicts) == 5 + 6 + 5
    assert verdicts["gpt.memory-best.asymmetric-0.3"] == "contradicted"
    assert verdicts["gpt.memory-wide.asymmetric-0.3"] == "supported"
    for name in ("log-time-8", "fading-0.95", "polynomial-0.8"):
        assert verdicts[f"gpt.memory-wide.{name}"] == "contradicted"
    assert verdicts["gpt.memory-same.asymmetric-0.3"] == "supported"
    assert verdicts["gpt.memory-same.log-time-8"] == "inconclusive"


def test_the_settings_in_the_code_are_what_the_rule_makes_of_the_records():
    made, names = {}, ()
    for task in TASKS:
        screen = page.found(ROOT, task)
        given = page.trials(screen), memory.TOLERANCE[task.screen.name], screen.higher_is_better
        names = names or tuple(
            memory_rule.chosen(*given)
        )  # the screen of the transformer chooses for both tasks
        made[task.screen.name] = memory_rule.final(given[0], names, *given[1:])
    assert made == FINALS


WORSE = {"mean": -0.004, "low": -0.007, "high": -0.001}


@pytest.fixture
def judged(final):
    """asymmetric 0.3 trains well at the larger lr on both tasks, fading 0.95 does not; all are alike at their best."""

    def verdict(claim):
        if claim.a.startswith("fading 0.95"):
            return "contradicted"
        wide = claim.rule == "not_worse" and claim.a.startswith("asymmetric 0.3")
        return "supported" if wide else "inconclusive"

    return {
        claim.id: {"id": claim.id, "verdict": verdict(claim), "estimate": {}}
        for task in TASKS
        for claim in memory_finals.claims(task, final)
    }


@pytest.mark.parametrize(
    ("id", "changed", "earned"),
    [
        ("", {}, ["asymmetric 0.3"]),
        ("cifar10.memory-best.asymmetric-0.3", {"verdict": "contradicted"}, []),
        ("cifar10.memory-best.asymmetric-0.3", {"estimate": WORSE}, []),  # by the plain interval alone
        ("gpt.memory-wide.asymmetric-0.3", {"verdict": "inconclusive"}, []),
        ("gpt.memory-wide.fading-0.95", {"verdict": "inconclusive"}, []),
    ],
)
def test_an_option_is_wider_and_not_worse_on_both_tasks(id, changed, earned, judged, final):
    both = {task.screen.name: final for task in TASKS}
    if id:
        judged[id] |= changed
    closed = id == "gpt.memory-wide.fading-0.95"
    decision = memory_finals.decide(judged, both)
    assert decision.options == earned
    assert decision.undecided == [GPT] * closed
    assert not closed or decision.good[SCREEN.name] == ["asymmetric 0.3"], "apart from the control"


def test_a_memory_whose_range_is_only_moved_is_no_option(judged, final):
    moved = final._replace(covers=tuple(name for name in final.covers if name != "asymmetric 0.3"))
    both = {SCREEN.name: final, CIFAR.screen.name: moved}
    decision = memory_finals.decide(judged, both)
    assert (decision.options, decision.undecided) == ([], [])


def test_a_memory_without_final_runs_on_a_task_is_no_option_and_does_not_delay_the_others(judged, final):
    """asymmetric 0.3 diverged at every rate of CIFAR-10."""
    fewer = final._replace(rates={k: v for k, v in final.rates.items() if k != "asymmetric 0.3"})
    both = {SCREEN.name: final, CIFAR.screen.name: fewer}
    kept = {claim.id for task in TASKS for claim in memory_finals.claims(task, both[task.screen.name])}
    for id in kept:
        if "fading-0.95" not in id:
            judged[id]["verdict"] = "supported"
    rest = ["fading 0.999", "growing b2T=3", "log-time 8", "polynomial 0.8"]
    assert memory_finals.decide({id: judged[id] for id in kept}, both).options == rest


def test_the_rule_and_the_page_have_the_same_numbers():
    text = (ROOT / "docs" / "memory-study.md").read_text()
    for task, seeds in zip(TASKS, ("five on the transformer", "eight on CIFAR-10"), strict=True):
        assert task.limit in text
        assert seeds in text
        assert set(memory_rule.KEPT) < {row.name for row in task.screen.rows}
    assert (GPT.seeds, CIFAR.seeds, memory.CIFAR_EPOCHS) == (5, 8, 60)
    assert "60 epochs" in text
    assert (len(memory.GPT_RATES), len(memory.CIFAR_RATES)) == (6, 7)
    assert "six learning rates (seven on CIFAR-10)" in text
    assert set(memory.TOLERANCE) == {task.screen.name for task in TASKS}


def test_the_limitation_on_families_of_tests_is_that_of_the_records():
    """Of the 16 claims of a task, adjusted together, two have another verdict than in their families."""
    text = " ".join((ROOT / "docs" / "memory-study.md").read_text().split())
    changed = {}
    for task, claims in zip(TASKS, (memory_finals.GPT_CLAIMS, memory_finals.CIFAR_CLAIMS), strict=True):
        mine = [claim for claim in claims if claim.study in (task.best, task.wide)]
        runs = [run for name in (task.best, task.wide) for run in records.load(ROOT / "records", name)]
        assert len(mine) == 16
        alone = [judge([claim], runs)[0]["p"] for claim in mine]
        for row, p in zip(judge(mine, runs), stats.holm(alone), strict=True):
            if p > 0.05 and row["verdict"] != "inconclusive":
                changed[row["id"]] = f"{p:.2g}"
    assert changed == {"gpt.memory-wide.growing-b2T3": "0.13", "cifar10.memory-same.growing-b2T3": "0.057"}
    assert "two verdicts would be inconclusive" in text
    assert all(f"(p = {p})" in text for p in changed.values())


def scores(name, task, place="records"):
    """The final results of each row by seed, in the unit of the tables."""
    found = {}
    for run in records.load(ROOT / place, name):
        if run.done and run.spec["purpose"] == "final":
            found.setdefault(run.row, {})[run.spec["seed"]] = task.scale * run.done["metric"]
    return found


def test_the_loss_that_the_test_of_width_needed_is_that_of_the_records():
    """At Holm's strictest level of six claims, beyond the tolerance, with the standard deviation that was seen."""
    text = " ".join((ROOT / "docs" / "memory-study.md").read_text().split())
    needed = []
    for task in TASKS:
        found = scores(task.wide, task)
        large = found[f"fading 0.95, lr {FINALS[task.screen.name].above:g}"]
        seen = stats.t_interval([large[seed] - x for seed, x in found["fading 0.95"].items()], 1 - 0.05 / 6)
        needed.append(f"{task.tolerance + (seen.high - seen.low) / 2:.2g}")
    assert needed == ["0.034", "1.7"]
    assert "a mean loss of about 0.034 nats or 1.7 points" in text


def test_the_noise_of_all_nine_seeds_is_that_of_the_records():
    six = scores("gpt-eight-bit", GPT)
    three = scores("gpt-short", GPT, "records/unfinished")
    adamw, adaxw = (six[f"{name}, float32"] | three[f"{name} 4M, context 64"] for name in ("adamw", "adaxw"))
    assert len(adamw) == 9
    apart = max(adamw.values()) - min(adamw.values())
    paired = stats.sd([adaxw[seed] - x for seed, x in adamw.items()])
    assert f"({paired:.4f} and {apart:.4f})" in (ROOT / "docs" / "gpt.md").read_text()
    assert f"({apart:.4f} in all nine)" in (ROOT / "docs" / "memory-study.md").read_text()


def test_the_two_comparisons_of_adamws_b2_are_those_of_the_records():
    larger, smaller = scores("gpt", GPT), scores(GPT.best, GPT)
    here = stats.mean([larger["adamw"][seed] - x for seed, x in larger["adamw@b2=.999"].items()])
    there = stats.mean([smaller["fading 0.999"][seed] - x for seed, x in smaller["fading 0.95"].items()])
    page = " ".join((ROOT / "docs" / "gpt.md").read_text().split())
    assert f"better mean than .95 here (by {here:.4f}, n = 3) and a worse one" in page
    assert f"(by {there:.4f}, n = 5, with a smaller transformer)" in page


def test_the_noise_with_the_same_initial_weights_is_that_of_the_records():
    found = scores("gpt-shared", GPT)
    page, study = (
        " ".join((ROOT / "docs" / name).read_text().split()) for name in ("gpt.md", "memory-study.md")
    )
    for lr, shown in ((6e-4, "6e-4"), (2.4e-3, "2.4e-3")):
        adamw, adaxw = (found[f"{name} lr {lr:g}"] for name in ("adamw", "adaxw"))
        assert len(adamw) == len(adaxw) == 6
        worse = stats.t_interval([adaxw[seed] - x for seed, x in adamw.items()], 0.95)
        ends = [
            worse.sd * math.sqrt(5 / quantile) for quantile in (12.8325, 0.831212)
        ]  # chi-squared, 5 degrees
        ranges = [max(each.values()) - min(each.values()) for each in (adamw, adaxw)]
        noise = f"{worse.sd:.4f} ({ends[0]:.4f} to {ends[1]:.4f})"
        assert f"| {shown} | {noise} | {ranges[0]:.4f} | {ranges[1]:.4f} |" in page
        if lr == 6e-4:
            assert f"deviation is {worse.sd:.4f} and AdamW's range {ranges[0]:.4f}." in study
            low, second, *_, high = sorted(adaxw.values())
            assert f"{second - low:.4f} below the other five, whose range is {high - second:.4f}" in page
        else:
            assert f"by {worse.mean:.4f} nats [{worse.low:.4f}, {worse.high:.4f}]" in page
    runs = [run for run in records.load(ROOT / "records", "gpt-shared") if run.row == "adamw lr 0.0024"]
    apart = [stats.sd([run.metrics[i]["metric"] for run in runs]) for i in (1, 4, 7)]
    assert [runs[0].metrics[i]["step"] for i in (1, 4, 7)] == [400, 1000, 1600]
    assert "from {:.4f} at step 400 to {:.4f} at step 1,000 and {:.4f} at the end".format(*apart) in page


def test_the_limitation_on_cifar10_is_that_of_the_screen():
    """Fading .95 is the best of all memories at 0.001, and below the median of the others at every larger rate."""
    screen = page.trials(page.found(ROOT, CIFAR))
    for lr in memory.CIFAR_RATES[1:]:
        others = [
            x for name, tried in screen.items() if name != "fading 0.95" and (x := tried[lr]) is not None
        ]
        ours = screen["fading 0.95"][lr]
        assert ours > max(others) if lr == 1e-3 else ours < statistics.median(others), lr
