"""The whole result of a comparison as plain data: what `adax compare --json` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from adaxlab.answer import answer
from adaxlab.summary import Comparison, RowResult

VERSION = 1


def data(result: Comparison) -> dict[str, Any]:
    """The study, the answer, and every row with its settings, runs and verdict."""
    found = answer(result)
    return {
        "version": VERSION,
        "study": result.study.data(),
        "metric": result.metric_name,
        "higher_is_better": result.higher_is_better,
        "answer": {"text": found.text, "use": found.use or None, "code": found.code or None},
        "target": result.target,
        "changed_after_a_look": list(result.history),
        "optimizers": [_row(result, row) for row in result.rows],
    }


def _row(result: Comparison, row: RowResult) -> dict[str, Any]:
    verdict = None
    if row.verdict:
        verdict = {**_plain(row.verdict), "provisional": row.verdict.provisional}
    return {
        "name": row.name,
        "optimizer": result.study.row(row.name).method,
        "options": _plain(row.options),
        "b2_steps": row.b2_steps,
        "values": {str(seed): value for seed, value in row.values.items()},
        "estimate": _plain(row.estimate),
        "diverged": row.diverged,
        "verdict": verdict,
        "other_metrics": {name: _plain(estimate) for name, estimate in row.others.items()},
        "trials": _trials(result, row.name),
        "steps_to_target": list(row.steps_to),
        "seconds_to_target": list(row.seconds_to),
        "seconds": row.seconds,
        "step_ms": row.step_ms,
        "error": row.error or None,
        "traceback": row.error_file or None,
        "runs": [record.name for record in row.runs],
    }


def _trials(result: Comparison, name: str) -> list[dict[str, Any]]:
    """The tuning runs in order, with the metric on held-out data of each; None if it diverged."""
    found = [r for r in result.records if r.row == name and r.spec["purpose"] == "tune" and r.done]
    return [
        {
            "trial": r.spec["trial"],
            "seed": r.spec["seed"],
            "options": r.spec["options"],
            "metric": r.done["metric"] if r.done else None,
        }
        for r in sorted(found, key=lambda r: (r.spec["trial"] or 0, r.spec["seed"]))
    ]


def _plain(value: Any) -> Any:
    """Convert data for JSON: NaN and infinity become null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
