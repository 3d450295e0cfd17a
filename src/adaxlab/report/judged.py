"""The verdicts of `adax compare`, computed from records.

If there is a `study.json` beside the runs, its baseline and rule are used, and it determines what may not be judged.
For exported records, which have no such file, the reference is the best mean and the rule is the default one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adaxlab import stats, study_file
from adaxlab.errors import LabError
from adaxlab.report.series import Series, StudyRuns
from adaxlab.summary import UNTUNED, Comparison, summarise
from adaxlab.verdict import EQUAL, Verdict, verdicts


@dataclass(frozen=True)
class Judged:
    """The verdict on every label except `base`, with which the others are compared."""

    base: str
    fixed: bool = False
    """Whether `base` was named before the runs."""
    rule: stats.DecisionRule = field(default_factory=stats.DecisionRule)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    result: Comparison | None = None
    """The result of `adax compare`, if these are its verdicts."""

    @property
    def unjudged(self) -> str:
        """The reason why there is no verdict; empty if there is one."""
        whys = {found.why for found in self.verdicts.values()}
        if self.verdicts and all(v.outcome == "none" for v in self.verdicts.values()) and len(whys) == 1:
            return whys.pop()
        return ""

    def leads(self, label: str) -> bool:
        """Whether the label is better than all others: it is the baseline and all others are worse, or it is the only
        one compared with the baseline and is better."""
        outcomes = {name: v.outcome for name, v in self.verdicts.items() if v.outcome != "none"}
        if label == self.base:
            return bool(outcomes) and set(outcomes.values()) == {"worse"}
        return outcomes == {label: "better"}


def judged(runs: StudyRuns, baseline: str | None = None, rule: stats.DecisionRule | None = None) -> Judged:
    """The verdicts; a given baseline and rule take precedence over those of the study."""
    result = stored(runs)
    study = result.study if result else None
    if result and study and baseline in (None, study.baseline) and rule in (None, study.rule):
        own = {row.name: row.verdict for row in result.rows if row.verdict}
        if {study.baseline, *own} == {s.label for s in runs.series}:
            return Judged(study.baseline, True, study.rule, own, result)
    if study:
        baseline, rule = baseline or study.baseline or None, rule or study.rule
    rule = rule or stats.DecisionRule()
    values = {s.label: _values(s) for s in runs.series if s.final}
    ranked = [s.label for s in runs.ranked]
    base = baseline if baseline in values else (ranked[0] if ranked else "")
    without = {s.label: f"{s.label} failed" for s in runs.series if s.failed}
    if study and study.terms == "untuned":
        without = dict.fromkeys(values, UNTUNED) | without
    found = verdicts(values, base, rule, runs.higher_is_better, without) if base in values else {}
    return Judged(base, baseline == base, rule, found)


def _values(series: Series) -> dict[Any, float | None]:
    return {**series.scores, **{run.spec.get("seed"): None for run in series.diverged}}


def stored(runs: StudyRuns) -> Comparison | None:
    """The result of `adax compare` from the study.json beside the runs; None if there is no valid one."""
    file = runs.records[0].path.parent / "study.json"
    with contextlib.suppress(LabError, KeyError, TypeError, AttributeError):
        if file.is_file():
            study, changes = study_file.read(file)
            return summarise(study, runs.records, changes)
    return None


def note(found: Verdict, series: Series) -> str:
    """The number of pairs, and remarks on them."""
    if found.why and found.outcome == "none":
        return found.why
    said = [f"{found.n} pair{'s' * (found.n != 1)}"]
    if found.difference and found.difference.sd <= EQUAL * abs(found.difference.mean):
        said.append("all equal")
    if series.diverged:
        said.append(f"{len(series.diverged)} of {len(series.final)} diverged")
    return ", ".join(said)
