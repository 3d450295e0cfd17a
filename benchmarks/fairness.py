"""How often `adax compare` gives a verdict where there is none: AdamW against three copies of itself.

    python benchmarks/fairness.py [--comparisons 200] [--record records/fairness.json]

A small net on digits, with the default budget of `adax compare`: eight learning rates and five final seeds for each
optimizer. Every copy has tuning and final seeds of its own, so everything that differs is chance. At 95% confidence and
with Holm's correction, at most one comparison in 20 should have a verdict, if all copies had the same learning rate.
Tuning may give them different ones, and a difference between these is real; the record has every copy's lr and results.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab import environment
from adaxlab.driver import carry_out
from adaxlab.settings import choose_device
from adaxlab.study import Row, Study, Tuning
from adaxlab.summary import Comparison, summarise

NAMES = ("adamw", "adamw@second", "adamw@third", "adamw@fourth")
APART = 1000
"""Between the first seeds of two copies."""


def against_itself(
    task: str, comparisons: int, root: Path, *, trials: int = 8, seeds: int = 5, **given: Any
) -> Iterator[Comparison]:
    """Comparisons of AdamW with itself; every copy has its own stream of seeds."""
    for number in range(comparisons):
        runs = []
        for side, name in enumerate(NAMES):
            stream = APART * (len(NAMES) * number + side)
            one = Study(
                task,
                (Row(name),),
                f"self-{number}-{side}",
                seeds=seeds,
                first_seed=stream,
                tuning=Tuning(trials, first_seed=10_000_000 + stream),
                **given,
            ).complete()
            records = carry_out(one, root)
            assert records is not None
            runs += [replace(r, spec={**r.spec, "seed": r.spec["seed"] - stream}) for r in records]
        rows = tuple(Row(name) for name in NAMES)
        yield summarise(replace(one, rows=rows, first_seed=0, baseline=NAMES[0], name=f"self-{number}"), runs)


def outcomes(result: Comparison) -> list[dict[str, Any]]:
    """Each copy's chosen lr, its trials, its results by seed, and the verdict on all but the first."""
    return [
        {
            "lr": row.lr,
            "trials": row.trials,
            "results": list(row.values.values()),
            "outcome": row.verdict.outcome if row.verdict else None,
        }
        for row in result.rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--record", type=Path, default=None)
    given = parser.parse_args()
    if given.record:
        environment.check_clean()
    where = environment.describe(choose_device("cpu"), 1)
    options = {"epochs": given.epochs, "task_options": {"width": given.width}}
    found: list[list[dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as root:
        for result in against_itself("digits", given.comparisons, Path(root), **options):
            found.append(outcomes(result))
            wrong = sum(any(each["outcome"] in ("better", "worse") for each in one) for one in found)
            print(f"{len(found)} comparisons, {wrong} with a verdict", flush=True)
    if given.record:
        record = {
            "environment": where,
            "task": "digits",
            **options,
            "comparisons": found,
        }
        given.record.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
