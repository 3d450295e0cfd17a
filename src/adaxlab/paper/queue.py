"""Planned GPU studies, in the order in which they are to be run: docs/queue.md, written by `adax claims`.

Minutes are for one H200, from the records: those of a run where many share the GPU (stacks of CIFAR-10 networks,
`--jobs`), or of a run of ImageNet. A run that several studies share is counted in each.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adaxlab import records
from adaxlab.claim import NOT_RUN, VERDICTS, Claim
from adaxlab.markdown import table
from adaxlab.paper import catalogue
from adaxlab.study import Study


@dataclass(frozen=True)
class Job:
    study: str
    purpose: str = ""
    """The purpose of a study that judges no claim."""
    command: str = ""
    """The command, if it is not `adax reproduce`."""
    more: str = ""
    """Additional options of `adax reproduce`."""
    given: float | None = None
    """Its minutes, where they do not follow from its runs."""

    @property
    def minutes(self) -> float:
        """GPU minutes of all runs of the study."""
        if self.given is not None:
            return self.given
        study = catalogue.study(self.study)
        return minutes(self.study, study.runs())


RUN_SECONDS = {
    "cifar10": 19,
    "cifar10/adamnx": 6.4,
    "cifar10/decay": 120,
    "cifar10/memory": 6.4,
    "cifar10/table2-fp32": 204,
    "gpt": 14,
    "gpt-memory": 8,
    "imagenet": 103,
    "imagenet/tuned": 154,
    "imagenet/r50": 300,
    "imagenet/tiny-resnet50": 300,
    "language": 12,
    "voc": 21,
}
"""GPU seconds of a run of the studies whose names begin so; the longest name counts."""


def minutes(study: str, runs: int) -> float:
    """The GPU minutes of so many runs of a study, to two digits.

    >>> minutes("cifar10/lr", 26), minutes("imagenet/r50-tuned", 20), minutes("language/ptb", 2)
    (8.2, 100.0, 0.4)
    """
    seconds = RUN_SECONDS[max((name for name in RUN_SECONDS if study.startswith(name)), key=len)]
    return float(f"{runs * seconds / 60:.2g}")


def runs_for(claim: Claim, row: Mapping[str, Any]) -> int:
    """The runs that would judge an open claim for which no study is planned: those of its whole study if it was not
    run, else n new seeds of its rows (for a ratio of tuned settings, at all their learning rates). 0 if it is decided,
    or would need too many."""
    study = catalogue.studies().get(claim.study)
    if row["verdict"] == NOT_RUN:
        return study.runs() if isinstance(study, Study) else 0
    digits = row["plan"].get("needed", "").removeprefix("at least ")
    if not digits.isdigit() or not isinstance(study, Study):
        return 0
    rows = [name for name in (claim.a, claim.b) if name]
    if claim.rule == "paper_ratio":
        return int(digits) * sum(len(study.row(name).rates) for name in rows)
    return int(digits) * len(rows)


AGAIN = ("cifar10/runtime", "language/speed")
"""Studies that are run again because their record lacks what the claim needs."""
JOBS = (
    Job("language/ptb-even", more="--jobs 8"),
    Job("gpt-bf16", more="--jobs 4"),
    Job("cifar10/memory-rates"),
    Job("cifar10/sgdm-lr"),
    Job("cifar10/runtime", given=2),
    Job("language/speed", command="python benchmarks/language.py", given=2),
    Job("cifar10/catch-up"),
    Job("cifar10/table2-new"),
    Job("voc/camvid-new"),
    Job("imagenet/tiny-new"),
    Job("cifar10/decay-30"),
    Job("imagenet/tuned-new"),
    Job("cifar10/table2-fp32"),
    Job("imagenet/r50-tuning", "the learning rates of imagenet/r50-tuned", given=42),  # shorter runs
    Job("imagenet/r50-tuned"),
)
OPEN = (VERDICTS[None], NOT_RUN)


def ran(root: Path) -> set[str]:
    """The studies of the queue whose record contains what their claims need."""
    return {job.study for job in JOBS if job.study not in AGAIN and records.load(root, job.study)}


def job_of(claim: Claim, verdict: str, ran: Container[str] = ()) -> Job | None:
    """The job that would judge an open claim; None if its study has been run."""
    wanted = claim.retest or claim.study
    if verdict not in OPEN or wanted in ran:
        return None
    return next((job for job in JOBS if job.study == wanted), None)


def planned(claim: Claim, job: Job) -> int | None:
    """The n of a claim after a job: the number of seeds, or of tuning seeds if tuned settings are compared."""
    study = catalogue.studies().get(job.study)
    if not isinstance(study, Study):
        return None
    return len(study.tuning.all_seeds) if claim.rule == "paper_ratio" and study.tuning else study.seeds


HEAD = """# Planned GPU studies

<!-- Made from src/adaxlab/paper/queue.py by `adax claims`; edits here are lost. -->

These studies would judge claims that are open, provisional or post hoc. They require a GPU, and are listed in the
order in which they are to be run. [The open claims](claims.md#open-claims) name their study and compare its number of
seeds with the required one: a study may leave a claim open. Some claims that are already decided, but provisional or
post hoc, are judged again on new seeds.

- **Cost.** Minutes are estimates for one H200, from the records, and are shared by all claims of a study. A run that
  several studies share is counted in each.
- **Shared runs.** A run that an earlier study has made is not made again if it is in the store. On another machine,
  import it first, as with `adax runs import records/cifar10/lr-new.jsonl`.
- **Interruptions.** `--seconds 570` stops a command after that time. The same command resumes the study, also on
  another machine, because runs that have ended are stored in `records/unfinished`.
- **Sharing a GPU.** Commands of several studies can share a GPU. If `nvidia-cuda-mps-control -d` is started first,
  their kernels run concurrently. An error of one process on the GPU then ends all of them; the same commands resume.
- **Records.** A command that writes records requires a checkout without uncommitted changes. For a copy of the code
  without its git history, set `ADAXOPT_COMMIT` to the commit. CONTRIBUTING.md has the steps for a machine without a
  network.

"""


def waiting(
    root: Path, claims: Iterable[Claim], rows: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Job, list[Claim]]]:
    """The jobs that have no record yet, each with the claims that it judges."""
    asked, found = list(claims), []
    for job in JOBS:
        mine = [claim for claim in asked if job.study in (claim.study, claim.retest)]
        again = job.study in AGAIN and any(rows[claim.id]["verdict"] in OPEN for claim in mine)
        if again or not records.load(root, job.study):
            found.append((job, mine))
    return found


def page(root: Path, claims: Iterable[Claim], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/queue.md: the studies that have no record yet."""
    jobs, total = [], 0.0
    for job, mine in waiting(root, claims, rows):
        total += job.minutes
        command = job.command or f"adax reproduce {job.study} --records records {job.more}".strip()
        study = catalogue.studies().get(job.study)
        runs, seeds = (str(study.runs()), _seeds(study)) if isinstance(study, Study) else ("", "")
        own = sum(claim.ours for claim in mine)
        judges = job.purpose or f"{len(mine) - own} of the paper's claims, {own} of ours"
        jobs.append((f"`{job.study}`", f"`{command}`", runs, seeds, f"{job.minutes:g}", f"{total:g}", judges))
    head = ("study", "command", "runs", "seeds", "minutes", "total minutes", "judges")
    return f"{HEAD}{table(head, jobs)}\n"


def _seeds(study: Study) -> str:
    parts = []
    if study.tuning:
        used = study.tuning.all_seeds
        parts.append(f"tuning {used[0]}" + (f" to {used[-1]}" if len(used) > 1 else ""))
    if study.seeds:
        parts.append(f"{study.first_seed} to {study.first_seed + study.seeds - 1}")
    return "; ".join(parts)
