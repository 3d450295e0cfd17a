"""Every claim of the experiments, judged from records: `adax claims`.

    verdicts("cifar10/table2", records)    the rows of one study's claims
    judged(Path("records"))                the rows of all, by family: what records/claims/*.json hold

The claims of the theory are computed with its records (`theory/`) and share the row (`claim.row`).
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from adaxlab import files, records
from adaxlab.claim import NOT_RUN, WORDS, Claim, notes, words
from adaxlab.errors import unknown
from adaxlab.judge import judge
from adaxlab.paper import catalogue, claims_page, queue
from adaxlab.store import RunRecord

FAMILIES: dict[str, tuple[Claim, ...]] = {
    name: module.CLAIMS for name, module in sorted(catalogue.modules()) if hasattr(module, "CLAIMS")
}


def claims_of(study: str) -> list[Claim]:
    """The claims that rest on a study (`cifar10/table2`), or on any study of a family (`cifar10`)."""
    found = (claim for claims in FAMILIES.values() for claim in claims)
    return [claim for claim in found if study in (claim.study, claim.retest, claim.study.partition("/")[0])]


def verdicts(study: str, runs: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """The claims of a study (or of a family), judged from run records."""
    runs = list(runs)
    ran = {run.spec["study"] for run in runs}
    return _planned(claims_of(study), judge(claims_of(study), runs), ran)


def judged(root: Path) -> dict[str, list[dict[str, Any]]]:
    """Every claim of the experiments by family, judged from the files under `root`; what is open says what would
    decide it."""
    ran = queue.ran(root)
    return {family: _planned(claims, judge_files(claims, root), ran) for family, claims in FAMILIES.items()}


def judge_files(claims: Iterable[Claim], root: Path) -> list[dict[str, Any]]:
    """The claims, judged from the committed records under `root`."""
    claims = list(claims)
    return judge(claims, runs_under(root, claims))


def runs_under(root: Path, claims: Iterable[Claim]) -> list[RunRecord]:
    """The committed runs under `root` that the claims need."""
    studies = dict.fromkeys(study for claim in claims for study in claim.studies)
    return [run for study in studies for run in records.load(root, study)]


def _planned(
    claims: Iterable[Claim], rows: Iterable[dict[str, Any]], ran: Container[str]
) -> list[dict[str, Any]]:
    """The rows with the study of the queue that would judge them, and its minutes, unless it is one that has run.

    A claim has one price: its study's, which all claims of the study share, or else that of its own new runs.
    """
    claims, made = list(claims), []
    for claim, row in zip(claims, rows, strict=True):
        job, plan, text = queue.job_of(claim, row["verdict"], ran), row["plan"], ""
        if row["verdict"] in queue.OPEN and claim.superseded_by:
            text = f"superseded by {claim.superseded_by}, on new seeds"
            made.append({**row, "reason": text, "plan": {"superseded_by": claim.superseded_by}})
            continue
        if job:
            n = queue.planned(claim, job)
            plan = {**plan, "study": job.study, "planned": n, "minutes": job.minutes}
            if length := other_length(claim):
                plan["length"] = length
            seeds = f" with n = {n}" if n else ""
            text = f"study {job.study} would judge it{seeds}, about {job.minutes:g} GPU minutes for all its claims"
        elif runs := queue.runs_for(claim, row):
            plan = {**plan, "runs": runs, "minutes": queue.minutes(claim.study, runs)}
            what = "no study is planned"
            if row["verdict"] == NOT_RUN:
                what = f"study {claim.study} is not in the queue"
            text = f"{what}; {runs} runs, about {plan['minutes']:g} GPU minutes"
        made.append({**row, "reason": notes(row["reason"], text), "plan": plan})
    for claim, row in zip(claims, made, strict=True):
        if length := other_length(claim):
            row["note"] = notes(row["note"], f"{claim.retest} has {length}")
    return made


def other_length(claim: Claim) -> str:
    """The epochs of the study with the new seeds of a claim, if they differ from those of its first study."""
    if not claim.retest:
        return ""
    first, new = (catalogue.study(name).length("final") for name in (claim.study, claim.retest))
    return "" if first == new else f"{new} epochs instead of {first}"


def rows_of(root: Path, study: str = "") -> list[dict[str, Any]]:
    """The judged claims of all records under `root`, or of a study or family, the theory's among them."""
    theory = {path.stem: files.read_json(path)["claims"] for path in sorted((root / "theory").glob("*.json"))}
    if study in theory:
        return theory[study]
    if study:
        if not claims_of(study):
            known = sorted({claim.study for claims in FAMILIES.values() for claim in claims} | set(theory))
            raise unknown("study with claims", study, known)
        return _planned(claims_of(study), judge_files(claims_of(study), root), queue.ran(root))
    parts = [*theory.values(), *judged(root).values()]
    return [row for part in parts for row in part]


def committed(root: Path) -> list[dict[str, Any]]:
    """The rows as the files under `root` have them: theory/*.json and claims/*.json, nothing judged anew."""
    found: list[dict[str, Any]] = []
    for path in [*sorted((root / "theory").glob("*.json")), *sorted((root / "claims").glob("*.json"))]:
        data = files.read_json(path)
        found += data if isinstance(data, list) else data.get("claims", [])
    return found


def show(rows: Iterable[Mapping[str, Any]]) -> str:
    """The verdicts as text, those of one kind together."""
    groups: dict[str, list[str]] = {verdict: [] for verdict in WORDS}
    for row in rows:
        seen = f"{row['ours']} (n = {row['n']:,})" if row["n"] else row["ours"]
        marks = words(row).removeprefix(row["verdict"])
        text = f"  {row['id']}{marks}: {row['claim']}\n      {seen}"
        text += f"\n      {row['reason']}" if row["reason"] else ""
        groups[row["verdict"]].append(text)
    return "\n".join(
        f"{verdict}: {len(part)}\n" + "\n".join(part) for verdict, part in groups.items() if part
    )


def update(root: Path, check: bool = False) -> list[Path]:
    """Write `root`/claims/*.json, and docs/claims.md, docs/claims-*.md and docs/queue.md beside `root`; the files that
    were stale. `check` writes none."""
    rows, docs = judged(root), root.parent / "docs"
    texts = {
        root / "claims" / f"{name}.json": json.dumps(part, indent=1) + "\n" for name, part in rows.items()
    }
    every = [row for part in rows.values() for row in part]
    texts |= {docs / name: page for name, page in claims_page.pages(root, every).items()}
    asked = [claim for claims in FAMILIES.values() for claim in claims]
    texts[docs / "queue.md"] = queue.page(root, asked, {row["id"]: row for row in every})
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_bytes() != text.encode()]
    for path in [] if check else stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, texts[path].encode())
    return stale
