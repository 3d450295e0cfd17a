"""The one renderer of study tables, from records made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_records import run

from adaxlab import store
from adaxlab.measures import ended, final
from adaxlab.paper import catalogue, drawn, pages
from adaxlab.paper.tables import language
from adaxlab.paper.tables.study import Column, Layout, best, caption, memory, section, table, tried
from adaxlab.study import Row, Study, Tuning

ROOT = Path(__file__).parents[2]
LAYOUT = Layout(columns=(Column("seconds", lambda line: f"{len(line.good)} s"),))


def study(**given):
    rows = tuple(Row(name, options={"lr": 0.1}) for name in ("adamw", "adaxw"))
    return Study(**{"task": "digits", "rows": rows, "name": "s", "title": "Title", "note": "Note.", **given})


def runs(row, *metrics, **more):
    made = [run("s", row, metric, seed=seed, **more) for seed, metric in enumerate(metrics)]
    for one in made:
        one.env.update(hardware={"device": "a device"}, versions={"torch": "2"})
    return made


def cells(text, row):
    (found,) = (line for line in text.splitlines() if line.startswith(f"| {row} |"))
    return [cell.strip() for cell in found.split("|")[1:-1]]


def test_a_row_has_its_settings_n_and_interval():
    found = [*runs("adaxw", 0.600, 0.602, 0.599, lr=0.005), *runs("adamw", None, 0.573, 0.568)]
    for one in found[:3]:
        one.spec["options"]["betas"] = [0.9, 1e-3]
        one.done["steps"] = 2000
    text = table(study(), found, LAYOUT)
    assert text.splitlines()[0] == "|  | lr | b2 (b2·T) | n | test accuracy, % (95%) | seconds |"
    assert cells(text, "AdaX-W") == ["AdaX-W", "0.005", "0.001 (2)", "3", "60.03 (59.65 to 60.41)", "3 s"]
    assert cells(text, "AdamW")[3:] == ["2 (1 failed)", "57.05 (53.87 to 60.23)", "2 s"]


def test_a_row_without_runs_and_one_that_failed_say_so():
    text = table(study(), runs("adamw", None, None), LAYOUT)
    assert cells(text, "AdamW")[-3:] == ["0 (2 failed)", "all 2 failed", "0 s"]
    assert cells(text, "AdaX-W")[-3:] == ["0", "not run", "0 s"]
    assert "(" not in cells(table(study(), runs("adamw", 0.5), LAYOUT), "AdamW")[-2]  # one run: no interval


def test_the_papers_values_say_on_which_data():
    rows = (Row("adamw", paper=(69.9, 0.04)), Row("adaxw"))
    text = table(study(rows=rows, stand_in="ImageNet"), runs("adamw", 0.5), LAYOUT)
    assert text.splitlines()[0].endswith("| paper, on ImageNet |")
    assert cells(text, "AdamW")[-1] == "69.90 ± 0.04"
    assert table(study(rows=rows), runs("adamw", 0.5), LAYOUT).splitlines()[0].endswith("| paper |")


TRIALS = ((0.01, 0.3), (0.1, 0.5), (1.0, None))


def tuning(higher=True):
    return [one for lr, v in TRIALS for one in runs("adamw", v, lr=lr, purpose="tune", higher=higher)]


def test_the_learning_rates_tried_are_shown_and_the_best_is_marked():
    rows = (Row("adamw", options={"lr": 0.1}, rates=tuple(lr for lr, _ in TRIALS)),)
    asked = study(rows=rows, tuning=Tuning(3), seeds=1)
    text = table(asked, [*tuning(), *runs("adamw", 0.5, lr=0.1)], LAYOUT)
    results, trials = text.split("The learning rates tried, on validation data:")
    assert cells(trials, "AdamW")[2:] == ["0.01: 30.00", "**0.1: 50.00**", "1: failed"]
    assert cells(results, "AdamW")[1] == "0.1"
    edge = table(asked, [*tuning(), *runs("adamw", 0.5, lr=0.01)], LAYOUT)
    assert cells(edge.split("The learning")[0], "AdamW")[1] == "0.01 (edge)"
    walk = study(rows=(Row("adamw"),), tuning=Tuning(3), seeds=1)  # its trials are not in the records
    lines = table(walk, runs("adamw", 0.5, lr=0.1), LAYOUT).split("validation data:")[1].split("\n")
    assert len({line.count("|") for line in lines if line}) == 1
    losses = Layout(value=ended(final))
    assert best(tuning(higher=False), rows[0], losses) == 0.01
    assert tried(tuning(), rows[0], losses) == {0.01: 0.3, 0.1: 0.5, 1.0: None}


def test_a_study_that_only_tunes_has_a_cell_for_each_learning_rate():
    rows = (Row("adamw", rates=(0.01, 0.1, 1.0)), Row("adaxw", rates=(0.01, 0.1, 1.0)))
    text = table(study(rows=rows, tuning=Tuning(3), seeds=0), tuning()[:2], LAYOUT)
    assert cells(text, "AdamW")[2:] == ["0.01: 30.00", "**0.1: 50.00**", "1: not run"]
    assert cells(text, "AdaX-W")[2:] == ["0.01: not run", "0.1: not run", "1: not run"]


@pytest.mark.parametrize(
    ("optimizer", "second", "expected"),
    [
        ("sgdm", 0.0, ""),
        ("nosadam", 0.1, "c 0.1"),
        ("adaxw@b2T=1", 5e-4, "0.0005 (1)"),
        ("adaxlab.muon:MuonAdamW", 0.95, "0.95"),
        ("torch:AdamW", 0.999, "0.999"),
    ],
)
def test_the_memory_in_the_methods_own_words(optimizer, second, expected):
    (one,) = runs(optimizer, 0.5)
    one.spec["options"]["betas"] = [0.9, second]
    one.done["steps"] = 2000
    assert memory([one]) == expected


@pytest.mark.parametrize(
    ("given", "number", "expected"),
    [
        ("growing floor 0.005", 0.0015, "0.0015 (3)"),
        ("fading freeze 200", 0.999, "0.999"),
        ("log_time", 8.0, ""),
        ("equal", 0.0, ""),
        ("", 0.0015, "0.0015 (3)"),  # the asymmetric prototype
    ],
)
def test_a_memory_that_was_chosen_has_b2_only_if_its_number_is_one(given, number, expected):
    (one,) = runs("adamw", 0.5)
    one.spec["options"] |= {"betas": [0.9, number], **({"memory": given} if given else {"fast": 0.1})}
    one.done["steps"] = 2000
    assert memory([one]) == expected


def test_the_caption_says_where_and_what_is_missing():
    found = [*runs("adamw", 0.5, 0.5), *runs("adaxw", 0.5)]
    text = caption(study(), found, Layout(setting=lambda *_: "A net", notes=lambda *_: "More."))
    assert text == (
        "A net; 3 runs on a device, torch 2. `adax reproduce s`. Note. 7 of 10 runs were not executed. More."
    )
    assert "yet" not in caption(study(seeds=1), [*runs("adamw", 0.5), *runs("adaxw", 0.5)], LAYOUT)


def test_a_section_has_title_table_figures_and_verdicts(tmp_path):
    asked = catalogue.study("voc/camvid")
    assert pages.study(asked.name)(tmp_path) == "*Not run yet (`adax reproduce voc/camvid`).*"
    lines = [{"step": 500 * q, "train_loss": 1.0, "metric": 0.5} for q in (1, 2, 3, 4)]
    found = [
        run(asked.name, row.name, 0.5 + 0.1 * (row.name == "adaxw") + seed / 1000, seed=seed, metrics=lines)
        for row in asked.rows
        for seed in range(3)
    ]
    store.export(found, tmp_path / "records" / "voc" / "camvid.jsonl")
    text = pages.study(asked.name)(tmp_path)
    assert text.startswith(f"{asked.title}\n\n|")
    assert all(f"images/{name}.svg" in text for name in drawn.names(asked))
    shared = "For all claims of this table: at the paper's lr, with a tenth of its steps"
    assert text.count("at the paper's lr, with a tenth of its steps") == text.count(shared) == 1
    assert "| 3 | [supported (provisional)](claims-voc.md#claim-voc-adaxw-over-sgdm) |" in text
    assert "+10.00" in text
    assert section(asked, tmp_path, lambda *_: LAYOUT, lambda *_: "Beside it.").count("Beside it.") == 1


def test_a_claim_that_a_later_study_judges_is_named_not_repeated():
    lines = {name: pages.study(f"cifar10/{name}")(ROOT) for name in ("lr", "lr-new")}
    assert (
        "Judged by the runs of [lr-new](#lr-new): [cifar10.lr-robust](claims-cifar10.md#claim" in lines["lr"]
    )
    assert "robust to small changes" not in lines["lr"]
    assert (
        "| AdaX-W is robust to small changes of lr (4e-3 against 5e-3; within 0.3 points) |"
        in lines["lr-new"]
    )


def test_every_study_of_runs_is_on_its_page():
    """By a mark of its own or in the list of the others, so that a new study needs no other file."""
    root = Path(pages.__file__).parents[3]
    for family, found in pages.OF_FAMILY.items():
        text = (root / "docs" / f"{family}.md").read_text()
        for one in found:
            marked = f"<!-- {one.name.replace('/', '-')}: begin -->" in text
            assert marked or f"<!-- {family}-studies: begin -->" in text, one.name
        for one in found:
            assert set(one.figures) <= set(drawn.WORDS)


def test_studies_without_a_mark_of_their_own_are_listed(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "voc.md").write_text("<!-- voc-camvid: begin --><!-- voc-camvid: end -->")
    text = pages.SECTIONS["voc-studies"](tmp_path)
    assert "`voc/tuning`" in text
    assert "camvid`" not in text


@pytest.mark.parametrize(
    ("outcome", "n", "by", "lost", "cell"),
    [
        ("", 5, None, 0, "baseline"),
        ("better", 5, (0.1, 0.05, 0.15), 0, "better: +0.1000 (+0.0500 to +0.1500)"),
        ("better", 4, (0.1, 0.05, 0.15), 0, "better (provisional): +0.1000 (+0.0500 to +0.1500)"),
        ("worse", 3, (-0.1, -0.15, -0.05), 0, "worse (provisional): -0.1000 (-0.1500 to -0.0500)"),
        ("inconclusive", 3, (0.1, -0.15, 0.35), 0, "inconclusive: +0.1000 (-0.1500 to +0.3500)"),
        ("worse", 3, (0.1, 0.0, 0.2), 1, "worse (provisional, 1 diverged): +0.1000 (+0.0000 to +0.2000)"),
        ("worse", 5, None, 3, "worse (3 diverged)"),
        ("inconclusive", 3, None, 0, "inconclusive"),
    ],
)
def test_a_verdict_in_words(outcome, n, by, lost, cell):
    from adaxlab import stats, summary
    from adaxlab.paper.tables.study import Line
    from adaxlab.verdict import Verdict

    difference = stats.Estimate(n, by[0], 0.0, by[1], by[2]) if by else None
    judged = Verdict(outcome, n, difference) if outcome else None
    values = dict.fromkeys(range(3), 3.0) | dict.fromkeys(range(3, 3 + lost))
    result = summary.RowResult("x", {"lr": 0.1}, 0.1, {}, values, None, judged, None, 0.0, 0.0)
    assert language.versus(study(baseline="adamw")).cell(Line(Row("x"), result, [])) == cell
