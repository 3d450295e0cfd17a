"""CIFAR-10's claims, tables and page, from records made by hand and from the committed ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from adaxlab.cifar import claims, drive, guide, tables
from adaxlab.cifar.book import STUDIES, TABLE2
from adaxlab.cifar.claim import Claim
from adaxlab.cifar.later import LATER
from adaxlab.cifar.rules import CLAIMS

RECORDS = Path(__file__).parents[2] / "records"
CPU = torch.device("cpu")


# -- claims ---------------------------------------------------------------------------------------------------------


def line(row, seed, accuracy, train=50.0, loss=0.1, **extra):
    curve = {
        "train_loss": [loss] * 120,
        "train_accuracy": [train] * 99 + [99.0] * 21,
        "test_accuracy": [accuracy] * 120,
    }
    common = {"together": 1, "recipe": {"epochs": 120}, "curve": curve}
    return {"row": row, "seed": seed, "test_accuracy": accuracy, **common, **extra}


def lines(**rows):
    return [line(row, seed, value) for row, values in rows.items() for seed, value in enumerate(values)]


def many(**rows):
    """Three seeds a row; each row's function gives what is special about a seed."""
    return [line(row, seed, 92.0, **special(seed)) for row, special in rows.items() for seed in range(3)]


def early(value):
    """A trace that is `value` near iteration 1000 and something else elsewhere."""
    return {"trace": {"iteration": [1, 990, 5000], "value": [1.0, value, 1.0]}}


A, LOW, SAME = [92.5, 92.4, 92.6], [91.5, 91.6, 91.55], [92.45, 92.45, 92.6]
CASES = {
    "better, held": ("better", 0.0, lines(a=A, b=LOW), "held", 3),
    "better, not held": ("better", 0.0, lines(a=LOW, b=A), "not held", 3),
    "better, open": ("better", 0.0, lines(a=A, b=SAME), "undecided", 3),
    "two seeds decide nothing": ("better", 0.0, lines(a=A[:2], b=LOW[:2]), "undecided", 2),
    "paired by seed": ("better", 0.0, lines(a=[90.2, 92.2, 94.2], b=[90.0, 92.01, 94.01]), "held", 3),
    "b was not run": ("better", 0.0, lines(a=A), "undecided", 0),
    "a diverged": ("better", 0.0, lines(a=[*A, 10.0], b=[*LOW, 91.0]), "not held", 3),
    "a diverged more often": ("better", 0.0, lines(a=[92.5, 92.4, 10.0], b=LOW), "not held", 2),
    "a diverged always": ("better", 0.0, lines(a=[10.0] * 3, b=LOW), "not held", 0),
    "a diverged, and was run twice": ("better", 0.0, lines(a=[10.0, 92.5], b=LOW[:2]), "undecided", 1),
    "b diverged always": ("better", 0.0, lines(a=A, b=[10.0] * 3), "undecided", 0),
    "value, diverged always": ("value", 0.0, lines(a=[10.0] * 3), "not held", 0),
    "similar, held": ("similar", 0.3, lines(a=A, b=SAME), "held", 3),
    "similar, not held": ("similar", 0.3, lines(a=A, b=LOW), "not held", 3),
    "similar, open": ("similar", 0.05, lines(a=A, b=SAME), "undecided", 3),
    "not worse, held": ("not-worse", 0.3, lines(a=SAME, b=A), "held", 3),
    "not worse, for it is better": ("not-worse", 0.3, lines(a=A, b=LOW), "held", 3),
    "not worse, not held": ("not-worse", 0.3, lines(a=LOW, b=A), "not held", 3),
    "not worse, open": ("not-worse", 0.05, lines(a=SAME, b=A), "undecided", 3),
    "value, held": ("value", 0.0, lines(a=A), "held", 3),
    "value, not held": ("value", 0.0, lines(a=LOW), "not held", 3),
    "value, diverged": ("value", 0.0, lines(a=[*A, 10.0]), "not held", 3),
    "faster, held": (
        "faster",
        0.0,
        many(a=lambda s: {"train": 80 + s}, b=lambda s: {"train": 70 + s / 2}),
        "held",
        3,
    ),
    "below, held": ("below", 4e-4, many(a=lambda s: early(2e-4 + s * 1e-6)), "held", 3),
    "below, not held": ("below", 4e-4, many(a=lambda s: early(5e-4 + s * 1e-6)), "not held", 3),
    "as-fast, held": (
        "as-fast",
        0.05,
        many(a=lambda s: {"seconds": 100 + s}, b=lambda s: {"seconds": 101 + s}),
        "held",
        3,
    ),
    "as-fast, one time of runs that trained together": (
        "as-fast",
        0.05,
        many(a=lambda s: {"seconds": 100, "together": 3}, b=lambda s: {"seconds": 101, "together": 3}),
        "undecided",
        1,
    ),
    "as-fast, two stacks of three seeds": (
        "as-fast",
        0.05,
        [line(row, s, 92.0, seconds=100 + s // 3, together=3) for row in ("a", "b") for s in range(6)],
        "undecided",
        2,
    ),
    "as-fast, by the epoch": (
        "as-fast",
        0.05,
        many(
            a=lambda s: {"seconds": 130, "epoch_seconds": 1 + s / 99},
            b=lambda s: {"epoch_seconds": 1 + s / 98},
        ),
        "held",
        3,
    ),
    "as-fast, not held": (
        "as-fast",
        0.05,
        many(a=lambda s: {"seconds": 120 + s}, b=lambda s: {"seconds": 100 + s}),
        "not held",
        3,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case):
    rule, margin, found, verdict, n = CASES[case]
    b = "" if rule in ("value", "below") else "b"
    claim = Claim(
        "x", "Section 5", "text", "table2", rule, "a", b, margin, (92.5, 0.1) if rule == "value" else None
    )
    judged = claims.judge(claim, found)
    assert (judged["verdict"], judged["n"]) == (verdict, n)
    assert set(judged) == {"id", "section", "claim", "paper", "ours", "n", "rule", "verdict", "note"}
    assert judged["rule"].endswith(" (a: a, b: b)") == bool(b)


@pytest.mark.parametrize(
    ("rule", "margin", "a", "b", "said"),
    [
        # seeds far apart, a always a little above b: held by pairs, open without them
        ("better", 0.0, [90.2, 92.2, 94.2], [90.0, 92.01, 94.01], "which would be undecided"),
        ("better", 0.0, A, LOW, ""),
        # two rows alike whose seeds do not go together: the other way round
        ("similar", 0.3, [92.0, 92.1, 92.2, 92.3], [92.3, 92.2, 92.1, 92.0], "which would be held"),
    ],
)
def test_what_the_pairs_decide_alone_is_said(rule, margin, a, b, said):
    judged = claims.judge(Claim("x", "", "", "table2", rule, "a", "b", margin), lines(a=a, b=b))
    if not said:
        assert "without pairing" not in judged["ours"]
        return
    assert judged["ours"].endswith(said)
    # Welch's interval, written out: the degrees of freedom are n_a + n_b - 2 where variances are equal
    n, t = len(a), {3: 2.7764451, 4: 2.4469119}[len(a)]
    va, vb = np.var(a, ddof=1), np.var(b, ddof=1)
    assert va == pytest.approx(vb, rel=0.02)
    half, middle = t * ((va + vb) / n) ** 0.5, np.mean(a) - np.mean(b)
    assert f"[{middle - half:+.2f}, {middle + half:+.2f}]" in judged["ours"]


def test_a_claim_may_name_a_row_of_another_study(tmp_path):
    (tmp_path / "cifar10").mkdir()
    for study, values in (("table2", LOW), ("tuned", A)):
        text = "".join(json.dumps(r) + "\n" for r in lines(adamw=values, adaxw=[50.0] * 3))
        (tmp_path / "cifar10" / f"{study}.jsonl").write_text(text)
    claim = Claim("x", "", "", "tuned", "better", "table2: adamw", "adamw")
    judged = claims.judge(claim, claims.lines_for(claim, tmp_path))
    assert (judged["verdict"], judged["n"]) == ("not held", 3)
    assert judged["ours"].startswith("91.55 - 92.50 = -0.95")


def test_claims_that_came_later_say_so():
    assert all("asked for" in claim.note for claim in LATER)


def trace(row, seed, early, late):
    return line(row, seed, 92.0, trace={"iteration": [1, 1000, 70000], "value": [1.0, early, late]})


@pytest.mark.parametrize(("late", "verdict"), [(5e-4, "held"), (1e-4, "not held")])
def test_larger_must_hold_at_both_times(late, verdict):
    rows = (("a", 9e-4, late), ("b", 2e-4, 2e-4))
    found = [trace(row, s, v * (1 + s / 50), w * (1 + s / 60)) for row, v, w in rows for s in range(3)]
    claim = Claim("x", "Section 5", "text", "trace", "larger", "a", "b")
    assert claims.judge(claim, found)["verdict"] == verdict


def test_committed_claims_are_those_of_the_records():
    assert claims.main(["--records", str(RECORDS), "--check"]) == 0


def test_the_check_can_fail(tmp_path, capsys):
    assert claims.main(["--records", str(tmp_path)]) == 0
    assert claims.main(["--records", str(tmp_path), "--check"]) == 0
    (tmp_path / "claims" / "cifar10.json").write_text("[]\n")
    assert claims.main(["--records", str(tmp_path), "--check"]) == 1
    assert "not what the records give" in capsys.readouterr().err


# -- records and pages ----------------------------------------------------------------------------------------------


def test_the_main_table_is_complete():
    found = drive.records(RECORDS / "cifar10" / "table2.jsonl")
    assert len(found) == 25
    assert {(r["row"], r["seed"]) for r in found} == {(row.name, s) for row in TABLE2.rows for s in range(5)}
    for r in found:
        assert r["images"] == 50_000
        assert len(r["curve"]["test_accuracy"]) == 182
        assert r["test_accuracy"] == r["curve"]["test_accuracy"][-1]


def test_table_from_records(tmp_path):
    text = tables.table("table2", RECORDS)
    values = [
        r["test_accuracy"] for r in drive.records(RECORDS / "cifar10" / "table2.jsonl") if r["row"] == "adaxw"
    ]
    assert f"| AdaX-W | 5 | {sum(values) / 5:.2f} |" in text
    assert "92.32 ± 0.04" in text
    assert tables.table("zoo", tmp_path) == "*CIFAR-10, zoo: not run yet (`adax reproduce cifar10/zoo`).*"
    assert set(tables.not_run(tmp_path)) == set(STUDIES)
    assert "table2" not in tables.not_run(RECORDS)


def test_the_documentation_shows_the_recorded_speed():
    page = (RECORDS.parent / "docs" / "cifar10.md").read_text()
    record = json.loads((RECORDS / "cifar10" / "throughput.json").read_text())
    for row in record["rows"]:
        cells = (
            str(row["models"]),
            row["precision"],
            f"{row['train_seconds']:.3f}",
            f"{row['test_seconds']:.3f}",
        )
        assert f"| {' | '.join(cells)} |\n" in page
    assert page.count("| bf16 |") + page.count("| tf32 |") + page.count("| fp32 |") == len(record["rows"])
    whole = record["whole"]
    assert f"The whole table took {whole['seconds']:.0f} s" in page
    seconds = {r["seconds"] for r in drive.records(RECORDS / "cifar10" / "table2.jsonl")}
    assert seconds == {whole["seconds"]}


def test_the_documentation_shows_every_study_that_was_run():
    """Its question, every row's mean as computed here, its claims by links that lead somewhere; the rest by name."""
    page = (RECORDS.parent / "docs" / "cifar10.md").read_text()
    linked = (RECORDS.parent / "docs" / "claims.md").read_text()
    for name, study in STUDIES.items():
        found = drive.records(RECORDS / "cifar10" / f"{name}.jsonl")
        if not found:
            assert f"- `cifar10/{name}`: {study.asks}\n" in page
            continue
        (part,) = (p for p in page.split("### ")[1:] if p.startswith(f"{name}\n"))
        assert study.asks in part
        for row in study.rows:
            values = [r["test_accuracy"] for r in found if r["row"] == row.name]
            (shown,) = (text for text in part.splitlines() if text.startswith(f"| {tables.title(row.name)} "))
            cells = [cell.strip(" *") for cell in shown.split("|")]
            assert cells[2:4] == [str(len(values)), f"{sum(values) / len(values):.2f}"]
            losses = [r["train_loss"] for r in found if r["row"] == row.name]
            assert float(cells[-3 if study.alone else -2]) == pytest.approx(
                sum(losses) / len(losses), abs=6e-5
            )
        for claim in (c for c in CLAIMS if c.study == name):
            anchor = "claim-" + claim.id.replace(".", "-")
            assert f"[{claim.id}](claims.md#{anchor})" in part
            assert f'<a id="{anchor}">' in linked


def test_the_best_of_each_method_stands_out():
    text = tables.show(STUDIES["tuning"], drive.records(RECORDS / "cifar10" / "tuning.jsonl"))
    bold = [row.split("|")[1].strip() for row in text.splitlines() if "**" in row]
    assert bold == ["SGDM, lr 0.1", "AdamW, lr 0.003", "AMSGrad(W), lr 0.003", "AdaX-W, lr 0.005"]


def test_the_table_at_the_papers_rates_says_what_tuned_ones_give(tmp_path):
    assert tables.at_best(tmp_path) == ""
    text = tables.at_best(RECORDS)
    assert "With 5 tried for each method" in text
    for row, lr in (("adamw", "0.003"), ("adaxw", "0.005")):
        lines = drive.records(RECORDS / "cifar10" / "tuning.jsonl")
        top = max(r["test_accuracy"] for r in lines if r["row"].startswith(f"{row} lr"))
        assert f"{top:.2f} ({tables.TITLES[row]}, lr {lr})" in text
    assert text in (RECORDS.parent / "README.md").read_text()


def test_the_lead_at_tuned_rates_is_told_once_every_row_is_there(tmp_path):
    (tmp_path / "cifar10").mkdir()
    for name in ("tuning", "tuned", "table2"):
        text = (RECORDS / "cifar10" / f"{name}.jsonl").read_text()
        (tmp_path / "cifar10" / f"{name}.jsonl").write_text(text)
    assert tables.at_best(tmp_path) == tables.at_best(RECORDS)

    def mean(study, row):
        found = drive.records(RECORDS / "cifar10" / f"{study}.jsonl")
        return np.mean([r["test_accuracy"] for r in found if r["row"] == row])

    for row, name in (("adamw", "AdamW"), ("amsgradw", "AMSGrad(W)")):
        before, after = (mean(study, "adaxw") - mean(study, row) for study in ("table2", "tuned"))
        assert f"from {before:+.2f} to {after:+.2f} points over {name}" in tables.at_best(RECORDS)
    tuned = tmp_path / "cifar10" / "tuned.jsonl"
    part = [r for r in drive.records(tuned) if r["row"] != "amsgradw"]
    tuned.write_text("".join(json.dumps(r) + "\n" for r in part))
    assert tables.at_best(tmp_path).endswith("asks whether the order stays.")


def test_runs_that_were_trained_twice_are_compared():
    found = drive.records(RECORDS / "cifar10" / "trace.jsonl")
    main = {(r["row"], r["seed"]): r for r in drive.records(RECORDS / "cifar10" / "table2.jsonl")}
    moved = [
        r["test_accuracy"] - main["adaxw", r["seed"]]["test_accuracy"] for r in found if r["row"] == "adaxw"
    ]
    text = tables.again(STUDIES["trace"], found, RECORDS)
    assert "AdamW ended at the same accuracies" in text
    assert "AdaX-W ended " + ", ".join(f"{m:+.2f}" for m in moved) in text
    for name in ("table2", "epsilon", "tuned"):
        assert (
            tables.again(STUDIES[name], drive.records(RECORDS / "cifar10" / f"{name}.jsonl"), RECORDS) == ""
        )


@pytest.mark.parametrize(
    ("stacks", "said"),
    [
        ([(25, 558.0)] * 25, "25 networks at once in 9.3 minutes. "),
        (
            [(5, 8.1)] * 5 + [(5, 8.0)] * 5,
            "5 networks at once in 8.1 seconds and 5 networks at once in 8.0 seconds. ",
        ),
        ([(1, 8.0)] * 10, "one network at a time, 1.3 minutes in all. "),
    ],
)
def test_the_caption_says_what_trained_together(stacks, said):
    found = drive.records(RECORDS / "cifar10" / "runtime.jsonl")[:1]
    found = [{**found[0], "together": n, "seconds": s} for n, s in stacks]
    text = tables.caption(STUDIES["runtime"], found)
    assert said in text
    assert ("earlier form" in text) == (stacks[0][0] > 1)


def test_a_time_of_a_stack_counts_once():
    found = drive.records(RECORDS / "cifar10" / "runtime.jsonl")
    alone = [{**r, "together": 1, "seconds": 8.0 + r["seed"]} for r in found]
    apart = {True: alone, False: [{**r, "together": 5, "seconds": 8.0} for r in found]}
    for single, shown in ((True, "10.0 (n = 5)"), (False, "8.0 (n = 1)")):
        rows = [
            row
            for row in tables.show(STUDIES["runtime"], apart[single]).splitlines()
            if row.startswith("| Ada")
        ]
        assert [row.split("|")[-2].strip() for row in rows] == [shown] * 2


def test_a_study_with_fewer_seeds_than_planned_says_so():
    found = drive.records(RECORDS / "cifar10" / "epsilon.jsonl")
    assert "seeds." not in tables.caption(STUDIES["epsilon"], found)
    less = [r for r in found if r["seed"] < 2]
    assert tables.caption(STUDIES["epsilon"], less).endswith("So far 2 of 3 seeds.")


def test_a_study_cut_short_says_what_is_missing():
    found = [r for r in drive.records(RECORDS / "cifar10" / "epsilon.jsonl") if "eps 1e-5" not in r["row"]]
    found = [{**r, "test_accuracy": 10.0} if r["row"] == "adaxw eps 1e-8" else r for r in found]
    text = tables.show(STUDIES["epsilon"], found)
    assert "| AdamW, eps 1e-5 | 0 | not run | | | |\n" in text
    assert "| AdaX-W, eps 1e-8 | 0 | all 3 failed | | | |\n" in text
    assert "| AdaX-W, eps 1e-12 (table2's runs) | 3 |" in text


def test_the_page_is_built_from_the_committed_records(tmp_path):
    pytest.importorskip("altair")
    from adaxlab.cifar.page import write

    text = write(RECORDS, tmp_path / "cifar10.html").read_text()
    assert "adaxw" in text
    assert "0.0005" in text
    assert "0.0001" in text
    assert "cifar10.adaxw-over-adamw" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def _refuse(value):
    raise ValueError(f"{value} is not JSON")


def test_records_are_plain_json():
    found = list((RECORDS / "cifar10").glob("*.jsonl"))
    assert found
    for path in found:
        for text in path.read_text().splitlines():
            json.loads(text, parse_constant=_refuse)


def test_the_guide_says_what_each_setting_gave(tmp_path):
    """Means and the pooled deviation of seeds, as computed here; studies that are not whole are left out."""
    text = guide.settings(RECORDS)
    assert text in (RECORDS.parent / "docs" / "hyperparameters.md").read_text()
    deviations, rows = [], 0
    for study in ("lr", "beta1", "beta2", "epsilon"):
        found = drive.records(RECORDS / "cifar10" / f"{study}.jsonl")
        for row in {r["row"] for r in found if r["row"].startswith("adaxw ")}:
            values = np.array([r["test_accuracy"] for r in found if r["row"] == row])
            assert f"{values.mean():.2f} at {row.split()[-1]}" in text
            rows += 1
            if len(values) > 2:
                deviations += list(values - values.mean())
    assert rows == 9 + 4 + 3 + 4
    free = len(deviations) * 2 / 3  # three seeds each
    assert f"deviation of {np.sqrt(np.sum(np.square(deviations)) / free):.2f})" in text
    assert guide.settings(tmp_path).startswith("*Not run yet")
