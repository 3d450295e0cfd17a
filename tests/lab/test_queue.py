"""The queue of studies: every job names a study that exists, and every open claim says what would decide it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from adaxlab import records
from adaxlab.claim import NOT_RUN, VERDICTS
from adaxlab.paper import catalogue, queue
from adaxlab.paper.claims import FAMILIES
from adaxlab.study import Study

RECORDS = Path(__file__).parents[2] / "records"
CLAIMS = {claim.id: claim for claims in FAMILIES.values() for claim in claims}
ROWS = {
    row["id"]: row
    for path in sorted((RECORDS / "claims").glob("*.json"))
    for row in json.loads(path.read_text())
}


@pytest.mark.parametrize("job", queue.JOBS, ids=lambda job: job.study)
def test_a_job_is_a_study_and_decides_something(job):
    assert job.command or isinstance(catalogue.find(job.study), Study)
    mine = [claim for claim in CLAIMS.values() if job.study in (claim.study, claim.retest)]
    assert mine or job.purpose


@pytest.mark.parametrize("job", queue.JOBS, ids=lambda job: job.study)
def test_the_seeds_of_a_job_are_new_to_its_rows(job):
    """No final run of the queue has a seed that an earlier study of the family has used."""
    study = catalogue.studies().get(job.study)
    if not isinstance(study, Study) or job.study in queue.AGAIN:
        return
    family = job.study.partition("/")[0]
    used = {
        run.spec["seed"]
        for name, other in catalogue.studies().items()
        if name != job.study
        and name.partition("/")[0] == family
        and isinstance(other, Study)
        and other.first_seed != study.first_seed  # studies of one call share runs
        for run in records.load(RECORDS, name)
    }
    assert not used & set(range(study.first_seed, study.first_seed + study.seeds))


def test_every_open_claim_says_what_would_decide_it():
    ran = {
        job.study for job in queue.JOBS if job.study not in queue.AGAIN and records.load(RECORDS, job.study)
    }
    for row in ROWS.values():
        assert bool(row["reason"]) == (row["verdict"] in (VERDICTS[None], NOT_RUN)), row["id"]
        job = queue.job_of(CLAIMS[row["id"]], row["verdict"], ran)
        assert (job is not None) == ("would judge it" in row["reason"]), row["id"]


def test_the_page_lists_what_has_no_record(tmp_path):
    text = queue.page(tmp_path, CLAIMS.values(), ROWS)
    assert text.count("\n| `") == len(queue.JOBS)
    assert (
        "| `cifar10/sgdm-lr` | `adax reproduce cifar10/sgdm-lr --records records` | 15 | 200 to 204 | 4.8 |"
        in text
    )
    assert "tuning 20000 to 20002; 220 to 227" in text


def test_an_open_claim_shows_the_n_that_is_needed_beside_the_n_that_is_planned():
    text = (RECORDS.parent / "docs" / "claims.md").read_text()
    both = [
        row for row in ROWS.values() if row["plan"].get("needed", "").isdigit() and "planned" in row["plan"]
    ]
    assert both
    for row in both:
        needed, n = row["plan"]["needed"], row["plan"]["planned"]
        assert int(needed) > 2
        assert n == queue.planned(CLAIMS[row["id"]], queue.job_of(CLAIMS[row["id"]], row["verdict"], ()))
        (line,) = re.findall(rf"\| \[{re.escape(row['id'])}\].* inconclusive \| {row['n']} \| .*", text)
        assert f"| {needed} | " in line
        assert f" | {n} | " in line


@pytest.mark.parametrize(
    ("id", "plan", "verdict", "runs"),
    [
        ("cifar10.beta1", {"needed": "20"}, VERDICTS[None], 40),  # two rows
        ("cifar10.table2.sgdm-he", {"needed": "9"}, VERDICTS[None], 9),  # one row
        ("cifar10.eps-adam", {"needed": "more than 1,000"}, VERDICTS[None], 0),
        (
            "language.enwik8.lr-ratio",
            {"needed": "at least 3"},
            VERDICTS[None],
            3 * (5 + 5),
        ),  # every lr of both rows
        ("imagenet.r50.sgdm-over-adamw", {}, NOT_RUN, 12),  # the whole study
        ("cifar10.beta1", {}, VERDICTS[True], 0),
    ],
)
def test_the_runs_that_would_judge_a_claim(id, plan, verdict, runs):
    assert queue.runs_for(CLAIMS[id], {"plan": plan, "verdict": verdict}) == runs


def test_every_open_claim_has_a_cost_unless_it_is_superseded_or_needs_too_many_seeds():
    for row in ROWS.values():
        if row["verdict"] in queue.OPEN:
            other = row["reason"].startswith("superseded by ") or "more than 1,000" in row["reason"]
            assert other != ("minutes" in row["plan"]), row["id"]


def test_a_superseded_claim_names_one_that_exists():
    found = [claim for claim in CLAIMS.values() if claim.superseded_by]
    assert found
    assert all(claim.superseded_by in CLAIMS for claim in found)
