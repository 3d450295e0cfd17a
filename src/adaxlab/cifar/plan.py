"""Which runs train together: those of several studies too, where recipe and data are the same.

A `Job` is a run and the study that asks for it. A run that two studies share is trained once, for the one that traces
it or else for the first; the other takes its line (`adopt.py`). Stacks are cut by whole seeds. The name of a stack's
checkpoint is made of what it holds, so that no other stack finds it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from adaxlab.cifar.adopt import may_adopt, whole
from adaxlab.cifar.book import Study
from adaxlab.cifar.stack import Run


@dataclass(frozen=True)
class Job:
    """One run of one study."""

    study: Study
    run: Run


def leaders(jobs: Sequence[Job]) -> list[Job]:
    """The jobs that are trained, in their order: without those whose run another one makes."""
    taken: set[tuple[str, str, int]] = set()
    chosen = []
    for i in sorted(range(len(jobs)), key=lambda i: (not jobs[i].study.trace, i)):
        study, run = jobs[i].study, jobs[i].run
        key = (_data(study), whole(run.optimizer, run.options), run.seed)
        if key not in taken or not may_adopt(study):
            chosen.append(i)
        taken.add(key)
    return [jobs[i] for i in sorted(chosen)]


def groups(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs that may share a stack: one recipe, one data set; a study that runs `alone` has its own."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(_data(job.study), []).append(job)
    return list(found.values())


def _data(study: Study) -> str:
    return json.dumps([asdict(study.recipe), study.holdout, study.name if study.alone else ""])


def stacks(jobs: Sequence[Job], size: int) -> list[list[Job]]:
    """Cut a group into stacks of as many whole seeds as `size` holds: a study cut short is balanced over its rows.

    Where one seed's rows are more than `size`, stacks of `size`, the first seeds first. A study that runs `alone` has
    one run in a stack, its rows in turn, for a comparison of their times.
    """
    if jobs and jobs[0].study.alone:
        parts = [[i] for i in sorted(range(len(jobs)), key=lambda i: jobs[i].run.seed)]
    else:
        seeds = sorted({job.run.seed for job in jobs})
        parts = [[i for i, job in enumerate(jobs) if job.run.seed == seed] for seed in seeds]
        if all(len(part) <= size for part in parts):
            parts = _filled(parts, size)
        else:
            parts = [[i for part in parts for i in part]]
    return [
        [jobs[i] for i in sorted(part[k : k + size])] for part in parts for k in range(0, len(part), size)
    ]


def _filled(parts: Sequence[list[int]], size: int) -> list[list[int]]:
    """Neighbours joined as long as they fit."""
    out: list[list[int]] = []
    for part in parts:
        if out and len(out[-1]) + len(part) <= size:
            out[-1] = out[-1] + part
        else:
            out.append(part)
    return out


def identity(jobs: Sequence[Job], images: int, precision: str) -> str:
    """What a stack's checkpoint is of, in full."""
    study = jobs[0].study
    held = [[j.study.name, j.run.row, j.run.optimizer, dict(j.run.options), j.run.seed] for j in jobs]
    return json.dumps([asdict(study.recipe), study.holdout, images, precision, held], sort_keys=True)


def name(jobs: Sequence[Job], images: int, precision: str) -> str:
    """The checkpoint's name: the studies, and a hash of `identity`."""
    digest = hashlib.sha256(identity(jobs, images, precision).encode()).hexdigest()[:10]
    return f"{'+'.join(dict.fromkeys(job.study.name for job in jobs))}-{digest}"
