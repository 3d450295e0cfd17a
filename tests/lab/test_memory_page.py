"""The page of the memory study: the answer, the tables, the figures."""

from pathlib import Path

import made_memory
import made_records
import pytest
from made_memory import CHOSEN, RATES, SCREEN

from adaxlab import store
from adaxlab.paper import forest, memory_chart, memory_finals
from adaxlab.paper.memory_finals import CIFAR, GPT
from adaxlab.paper.tables import memory_answer
from adaxlab.paper.tables import memory_study as page
from adaxlab.report.palette import Look
from adaxlab.summary import summarise

ROOT = Path(__file__).parents[2]
LOOK = Look("#1208d8", "#4562f1")


@pytest.fixture(scope="module")
def screen():
    return made_memory.screen()


@pytest.fixture(scope="module")
def final():
    return made_memory.final()


@pytest.mark.parametrize(
    ("id", "verdict"),
    [
        ("gpt.memory-wide.fading-0.95", "contradicted"),
        ("gpt.memory-best.log-time-2", "supported"),
        ("cifar10.memory-wide.growing-b2T3", "inconclusive"),
    ],
)
def test_the_answer_is_refused_when_a_verdict_is_not_the_one_that_it_states(id, verdict, monkeypatch):
    rows = page.judged(ROOT)
    rows[id] = {**rows[id], "verdict": verdict}
    monkeypatch.setattr(memory_answer, "judged", lambda root: rows)
    with pytest.raises(ValueError, match="TEXT must be rewritten"):
        memory_answer.answer(ROOT)


def test_what_the_answer_says_of_the_order_is_in_the_records():
    """At the larger rate: which memories lose least and most, and what is not significant at the same rate."""
    rows = page.judged(ROOT)
    cifar, gpt = (
        {name: row["estimate"]["mean"] for name, row in page.with_interval(task, "wide", rows).items()}
        for task in (CIFAR, GPT)
    )
    ends = {"fading 0.999", "growing b2T=3"}
    assert set(sorted(cifar, key=cifar.get)[-2:]) == set(sorted(gpt, key=gpt.get)[:2]) == ends
    assert max(gpt, key=gpt.get) == "polynomial 0.8"
    assert rows["gpt.memory-same.polynomial-0.8"]["verdict"] == "inconclusive"
    best = page.with_interval(GPT, "best", rows)
    assert [name for name, row in best.items() if memory_finals.worse(row)] == ["fading 0.999"]
    assert all(row["estimate"]["mean"] < 0 for row in best.values())
    assert all(row["estimate"]["mean"] > 0 for row in page.with_interval(CIFAR, "best", rows).values())


def test_the_figure_of_the_final_runs_has_every_memory_on_both_tasks():
    (first, above, seen), (second, *_) = page.finals(ROOT)
    assert (first, second, above) == (GPT, CIFAR, 0.0096)
    assert [name for name, *_ in seen["wide"]] == ["fading 0.95", *(name for name, *_ in seen["best"])]
    chart = memory_chart.finals(
        [(first, above, seen)], dict.fromkeys([name for name, *_ in seen["wide"]], LOOK)
    )
    band = [row for rows in chart.to_dict()["datasets"].values() for row in rows if "from" in row]
    assert [row["from"] for row in band] == [-0.02], "only at the larger rate"


def test_the_screen_has_a_row_for_every_memory():
    text = page._screen(GPT, summarise(SCREEN, made_memory.runs()), CHOSEN)
    assert "| fading 0.95 | 0.0006 | 1.3000 | 3: 0.0003 to 0.0012 | fixed |" in text
    assert "| growing, b2·T = 3 | 0.0006 | 1.3000 | 3: 0.0003 to 0.0012 | fixed |" in text
    assert "| asymmetric 0.3 | 0.0006 | 1.3000 | 5: 0.0003 to 0.0048 | chosen |" in text
    assert "| equal |  | diverged | 0 |  |" in text
    assert text.count("| fixed |") == 3
    assert text.count("| chosen |") == 3


def test_what_is_in_the_range_above_that_of_the_first_is_said(screen):
    moved = {**screen, "equal": dict(zip(RATES, [1.4, 1.3, 1.3, 1.3, 1.3, 9.0], strict=True))}
    text = page._above(GPT, moved, higher=False)
    assert "At lr 0.0024, the smallest above the range of fading 0.95, these memories are in" in text
    wider, shifted = (line.partition("): ") for line in text.splitlines()[-2:])
    assert wider[0].startswith("- with a wider range (also in it")
    assert "asymmetric 0.3" in wider[2].split("; ")
    assert "equal" not in wider[2].split("; ")
    assert shifted[0].startswith("- with a shifted range (out of it")
    assert shifted[2] == "equal"


def test_the_first_memory_has_no_difference_from_itself():
    lines = page._finals(GPT, ROOT).splitlines()
    (line,) = (line for line in lines if line.startswith("| fading 0.95 |"))
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert (cells[3], cells[4], cells[7], cells[8]) == ("", "", "", "")
    assert cells[6] == "[inconclusive](claims-gpt.md#claim-gpt-memory-wide-fading-0-95)"


def test_the_forest_plot_leaves_the_memory_study_out(final, monkeypatch):
    claims = memory_finals.claims(CIFAR, final)
    large = {claim.a for claim in claims} | {claim.b for claim in claims}
    made = [
        made_records.run(study, row, 0.9 + 0.001 * seed, seed=seed)
        for study in (CIFAR.best, CIFAR.wide)
        for row in large
        for seed in range(3)
    ]
    monkeypatch.setattr(forest, "FAMILIES", {"cifar10": claims})
    monkeypatch.setattr(forest, "runs_under", lambda *given: made)
    monkeypatch.setattr(memory_finals, "CIFAR_CLAIMS", ())
    assert len(forest.lines(ROOT / "records")) == len(claims)
    monkeypatch.setattr(memory_finals, "CIFAR_CLAIMS", claims)
    assert forest.lines(ROOT / "records") == []


def test_a_line_continues_after_a_rate_that_diverged(screen):
    gap = {**screen, "fading 0.999": dict(zip(RATES, [1.31, None, 1.30, 1.31, 9.0, None], strict=True))}
    drawn = memory_chart.chart([(GPT, gap, False)]).to_dict()
    points = [
        (row["lr"], row["value"])
        for rows in drawn["datasets"].values()
        for row in rows
        if row.get("memory") == "fading 0.999"
    ]
    assert points == list(zip(RATES, [1.31, None, 1.30, 1.31, None, None], strict=True))


def test_the_noise_is_that_of_the_paired_differences(tmp_path):
    steps = {"fading 0.95": 0.0, "equal": 0.01, "log-time 2": 0.02}
    made = [
        made_records.run(GPT.best, name, 1.3 + 0.001 * seed + step * (seed == 300), seed=seed, lr=1e-3)
        for name, step in steps.items()
        for seed in (300, 301, 302)
    ]
    (tmp_path / "records").mkdir()
    store.export(made, tmp_path / "records" / f"{GPT.best}.jsonl")
    text = page._noise(GPT, tmp_path)  # the differences are step, 0, 0: a standard deviation of step/sqrt(3)
    assert "standard deviations of 0.0058 to 0.0115, and the seeds of fading 0.95 a range of 0.0020" in text
