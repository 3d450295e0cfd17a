"""The page of the memory study, from made runs: the answer, the tables, the figures."""

import json
from pathlib import Path

import made_memory
import made_records
import pytest
from made_memory import RATES, SCREEN

from adaxlab import store
from adaxlab.judge import judge
from adaxlab.paper import figures, forest, memory_chart, memory_finals
from adaxlab.paper.memory_finals import CIFAR, FINALS, GPT, TASKS
from adaxlab.paper.tables import memory_answer
from adaxlab.paper.tables import memory_study as page
from adaxlab.report.palette import Look

ROOT = Path(__file__).parents[2]
LOOK = Look("#1208d8", "#4562f1")


@pytest.fixture(scope="module")
def runs():
    return made_memory.runs()


@pytest.fixture(scope="module")
def screen():
    return made_memory.screen()


@pytest.fixture(scope="module")
def final():
    return made_memory.final()


BEST = {"log-time 8": 0.004}
LARGE = {
    "fading 0.999": 0.03,
    "growing b2T=3": 0.05,
    "asymmetric 0.3": 0.01,
    "log-time 8": 0.02,
    "polynomial 0.8": 0.03,
}
"""What the memories gain at their best lr, and lose at the larger one, on the transformer; fading 0.95 loses 0.03."""


@pytest.fixture
def ended(final, runs, tmp_path, monkeypatch):
    """The records of a study that has ended; on CIFAR-10 growing memories lose nothing at the larger lr."""
    for module in (page, memory_answer):
        monkeypatch.setattr(module, "FINALS", {task.screen.name: final for task in TASKS})
    folder = tmp_path / "records" / "claims"
    folder.mkdir(parents=True)
    store.export(runs, tmp_path / "records" / "gpt-memory-screen.jsonl")
    for task, level, sign in ((GPT, 1.3, 1), (CIFAR, 0.9, -1)):
        other = {"growing b2T=3": 0.0} if task is CIFAR else {}

        def result(row, seed, i, level=level, sign=sign, other=other):
            name, _, large = row.name.partition(", lr")
            worse = ({"fading 0.95": 0.03} | LARGE | other)[name] if large else -BEST.get(name, 0.0)
            return level + sign * worse + 0.0001 * (seed % 3) * (1 + i % 2)

        made = [
            made_records.run(
                study.name, row.name, result(row, seed, i), seed=seed, lr=row.lr(), higher=task is CIFAR,
            )
            for study in memory_finals.studies(task, final)[1:]
            for i, row in enumerate(study.rows)
            for seed in study.all_seeds
        ]  # fmt: skip
        if task is GPT:
            mine = [run for run in made if run.spec["study"] == task.best]
            store.export(mine, tmp_path / "records" / f"{task.best}.jsonl")
        rows = judge(memory_finals.claims(task, final), made)
        (folder / f"{task.screen.task}.json").write_text(json.dumps(rows))
    return tmp_path


def test_the_answer_gives_the_numbers_of_the_final_runs(ended):
    first, _, *lines = memory_answer.answer(ended).splitlines()
    assert first.startswith("**No memory met the study's rule on both tasks")
    assert lines[0].startswith(
        "- *Each memory at its best lr, the transformer* (n = 5): mean differences from fading 0.95 of -0.0001 to "
        "+0.0040 nats per byte; significantly better: [log-time 8](claims-gpt.md#claim-gpt-memory-best-log-time-8) (+"
    )
    default = (
        " Post hoc, compared with fading 0.999, AdamW's memory with torch's default b2: log-time 8 +0.00"
    )
    assert default in lines[0]
    assert "compared with fading 0.999" not in lines[2], "none is better at the larger rate"
    assert lines[1].startswith(
        "- *Each memory at its best lr, CIFAR-10* (n = 8): mean differences from fading 0.95 of +0.00 to +0.40 points;"
    )
    assert "within the tolerance of 0.02 nats per byte: [asymmetric 0.3]" in lines[2]
    assert "outside the tolerance of 0.02 nats per byte: [fading 0.95]" in lines[2]
    assert "Post hoc, significantly worse than fading 0.95 at the same rate: [growing, b2·T = 3]" in lines[2]
    assert "within the tolerance of 1 point: [growing, b2·T = 3]" in lines[3]
    assert lines[4] == (
        "- growing, b2·T = 3 was within the tolerance at the larger rate on CIFAR-10 and outside it on the "
        "transformer. The larger rate is 4 times this memory's best rate on CIFAR-10 and 4 times on the transformer."
    )
    assert lines[-1] == (
        "- *For practice*: tune the learning rate before the memory. At tuned rates, another memory changed the mean "
        "by at most 0.0040 nats per byte on the transformer and 0.40 points on CIFAR-10. The result of fading 0.95 was "
        "worse by 0.0301 nats per byte at 4 times its best rate and 2.99 points at 4 times its best rate."
    )


def test_the_figure_of_the_final_runs_has_every_memory_on_both_tasks(ended):
    drawn = figures.draw(ended / "records", ended / "images")
    assert [Path(f).name for f in drawn][-2:] == ["memory-finals.svg", "memory-finals-dark.svg"]
    (first, above, seen), (second, *_) = page.finals(ended)
    assert (first, second, above) == (GPT, CIFAR, RATES[3])
    assert [name for name, *_ in seen["wide"]] == ["fading 0.95", *(name for name, *_ in seen["best"])]
    chart = memory_chart.finals(
        [(first, above, seen)], dict.fromkeys([name for name, *_ in seen["wide"]], LOOK)
    )
    band = [row for rows in chart.to_dict()["datasets"].values() for row in rows if "from" in row]
    assert [row["from"] for row in band] == [-0.02], "only at the larger rate"


@pytest.fixture
def records(runs, tmp_path):
    """Write the screen of the transformer, with other results for some memories."""

    def write(changed=()):
        changed = dict(changed)
        made = [run for run in runs if run.row not in changed]
        made += [
            made_records.run(SCREEN.name, name, value, seed=20_000, lr=lr, purpose="tune", higher=False)
            for name, values in changed.items()
            for lr, value in zip(RATES, values, strict=True)
        ]
        (tmp_path / "records" / "claims").mkdir(parents=True)
        store.export(made, tmp_path / "records" / "gpt-memory-screen.jsonl")
        return tmp_path

    return write


def test_a_range_that_reaches_the_largest_rate_decides_nothing(records):
    text = page.section(records({"fading 0.95": [1.31, *[1.3] * 5], "equal": [1.2, *[1.3] * 5]}))
    assert (
        "*Not complete: the range of fading 0.95 reaches the largest lr, 0.0096: screen larger ones.*" in text
    )
    assert "| fixed |" in text
    assert "| chosen |" not in text
    assert "| equal | 0.0003 (smallest) | 1.2000 | 6: 0.0003 to 0.0096 |  |" in text


def test_what_is_in_the_range_above_that_of_the_first_is_said(records):
    text = page.section(records({"equal": [1.4, 1.3, 1.3, 1.3, 1.3, 9.0]}))
    about = "At lr 0.0024, the smallest above the range of fading 0.95, these are in the range:"
    assert f"{about}\n\n- with every rate of fading 0.95 (a wider range): " in text
    wider = text.partition("(a wider range): ")[2].partition("\n")[0]
    assert "asymmetric 0.3" in wider.split("; ")
    assert "equal" not in wider.split("; ")
    assert "\n- without some rate of fading 0.95 (a shifted range): equal\n" in text


def test_that_nothing_is_in_the_range_above_that_of_the_first_is_said(records):
    text = page.section(records({row.name: [1.4, 1.3, 1.3, 9.0, 9.0, 9.0] for row in SCREEN.rows}))
    assert "At lr 0.0024, the smallest above the range of fading 0.95, no memory is in it." in text


def test_the_final_runs_that_are_missing_have_no_difference(records, final, monkeypatch):
    monkeypatch.setitem(FINALS, SCREEN.name, final._replace(covers=final.covers[1:]))
    root = records()
    rows = judge(memory_finals.claims(GPT, final), [])
    (root / "records" / "claims" / "gpt.json").write_text(json.dumps(rows))
    text = page.section(root)
    link = "[not run](claims-gpt.md#claim-gpt-memory-{}-fading-0-999)"
    assert f"| fading 0.999 | 0.0006 | no |  | {link.format('best')} |  | {link.format('wide')} |" in text
    assert "| log-time 8 | 0.0006 | yes |  |" in text
    assert "at most 0.02 nats per byte worse" in text
    wide = [row for row in rows if "wide" in row["id"]]
    assert all(
        "is at most 0.02 nats per byte worse than fading 0.95 at its best lr" in row["claim"] for row in wide
    )
    assert [row["id"] for row in wide if "control" in row["note"]] == ["gpt.memory-wide.fading-0.95"]


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


def test_the_page_has_a_row_for_every_memory_and_the_figure_is_drawn(runs, tmp_path):
    folder = tmp_path / "records"
    folder.mkdir()
    store.export(runs, folder / "gpt-memory-screen.jsonl")
    text = page.section(tmp_path)
    assert "| fading 0.95 | 0.0006 | 1.3000 | 3: 0.0003 to 0.0012 | fixed |" in text
    assert "| growing, b2·T = 3 | 0.0006 | 1.3000 | 3: 0.0003 to 0.0012 | fixed |" in text
    assert "| asymmetric 0.3 | 0.0006 | 1.3000 | 5: 0.0003 to 0.0048 | chosen |" in text
    assert "| equal |  | diverged | 0 |  |" in text
    assert text.count("| fixed |") == 3
    assert text.count("| chosen |") == 3
    assert "*Not run yet (`adax reproduce cifar10/memory-screen`).*" in text
    drawn = figures.draw(folder, tmp_path / "images")
    assert {Path(f).name for f in drawn} == {"memory-study.svg", "memory-study-dark.svg"}
    light, dark = (Path(f).read_text() for f in drawn)
    assert light != dark
    assert all(
        name in light for name in ("asymmetric 0.3", "growing, b2·T = 3", "Transformer, bytes of enwik8")
    )


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


def test_the_page_shows_the_verdicts_on_the_final_runs(runs, final, tmp_path, monkeypatch):
    monkeypatch.setitem(FINALS, SCREEN.name, final)
    folder = tmp_path / "records"
    (folder / "claims").mkdir(parents=True)
    store.export(runs, folder / "gpt-memory-screen.jsonl")
    judged = judge(memory_finals.claims(GPT, final), [])
    row = next(row for row in judged if row["id"] == "gpt.memory-wide.log-time-8")
    row |= {"ours": "1.30 and 1.31; better by +0.010 [+0.005, +0.015]", "verdict": "supported", "n": 5}
    (folder / "claims" / "gpt.json").write_text(json.dumps(judged))
    text = page.section(tmp_path)
    assert "Final runs on n = 5 new seeds, in nats per byte. The intervals" in text
    (line,) = (
        line for line in text.splitlines() if line.startswith("| log-time 8 |") and "claims-gpt.md" in line
    )
    assert "+0.010 [+0.005, +0.015] | [supported](claims-gpt.md#claim-gpt-memory-wide-log-time-8) |" in line


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
