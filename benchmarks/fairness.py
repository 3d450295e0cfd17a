"""Two checks of `adax compare` as a whole: tuning, final runs, verdict.

    python benchmarks/fairness.py self     AdamW against itself on independent seeds: how often is there a verdict?
    python benchmarks/fairness.py equal STORE/STUDY     do the verdicts of a study hold at equal learning rates?

`self` trains a small net on digits: 40 comparisons of 26 runs, which take some minutes. Each side has tuning and final
seeds of its own, so everything that differs is chance; at 95% confidence 2 verdicts of 40 are expected, and more than 5
have a probability of 1.4%.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab import study_file
from adaxlab.compare import compare
from adaxlab.driver import carry_out
from adaxlab.study import Row, Study, Tuning
from adaxlab.summary import Comparison, summarise
from adaxlab.verdict import Verdict

NAMES = ("adamw", "adamw@again")


def against_itself(
    task: str,
    comparisons: int,
    root: Path,
    *,
    trials: int = 8,
    seeds: int = 5,
    apart: int = 1000,
    **given: Any,
) -> Iterator[Comparison]:
    """Comparisons of AdamW with itself; every side of every comparison has its own stream of seeds."""
    for number in range(comparisons):
        sides = []
        for side, name in enumerate(NAMES):
            stream = apart * (2 * number + side)
            one = Study(
                task,
                (Row(name),),
                f"self-{number}-{side}",
                seeds=seeds,
                first_seed=stream,
                tuning=Tuning(trials, first_seed=1_000_000 + stream),
                **given,
            ).complete()
            records = carry_out(one, root)
            assert records is not None
            sides += [replace(r, spec={**r.spec, "seed": r.spec["seed"] - stream}) for r in records]
        rows = tuple(Row(name) for name in NAMES)
        yield summarise(
            replace(one, rows=rows, first_seed=0, baseline=NAMES[0], name=f"self-{number}"), sides
        )


def at_equal_rates(
    study: Study, result: Comparison, root: Path
) -> Iterator[tuple[str, float, Verdict, Verdict]]:
    """For every verdict: the row, a learning rate, the verdict of the study, and that with both at this rate.

    A verdict rests on the learning rate if the difference vanishes at the row's own: the baseline was then tuned badly.
    """
    base = result.row(study.baseline)
    for row in result.rows:
        if row.verdict is None or row.verdict.outcome not in ("better", "worse"):
            continue
        for lr in dict.fromkeys((base.lr, row.lr)):
            both = [study.row(name) for name in (base.name, row.name)]
            rows = tuple(replace(each, options={**each.options, "lr": lr}) for each in both)
            name = f"{study.name}-at-{lr:g}-{row.name}".replace("@", "-").replace(":", "-")
            equal = compare(replace(study, rows=rows, tuning=None, name=name), root)
            found = equal.row(row.name).verdict
            assert found is not None
            yield row.name, lr, row.verdict, found


def stored(folder: Path) -> tuple[Study, Comparison]:
    """A study that was run, and what it came to."""
    study, _ = study_file.read(folder / "study.json")
    return study, compare(study, folder.parent)


def _shown(found: Verdict) -> str:
    by = f" ({found.difference.mean:+.4f})" if found.difference else ""
    return f"{found.word}{by}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("self")
    own.add_argument("--comparisons", type=int, default=40)
    own.add_argument("--epochs", type=int, default=8)
    own.add_argument("--width", type=int, default=8)
    own.add_argument("--out", default="")
    equal = commands.add_parser("equal")
    equal.add_argument("study", type=Path)
    given = parser.parse_args()
    if given.command == "equal":
        study, result = stored(given.study)
        for row, lr, before, after in at_equal_rates(study, result, given.study.parent):
            equal_lr = f"{_shown(after)} with both at lr {lr:g}"
            print(f"{study.task}: {row} is {_shown(before)} as tuned, {equal_lr}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(given.out or folder)
        how = {"epochs": given.epochs, "task_options": {"width": given.width}}
        count = 0
        for number, result in enumerate(against_itself("digits", given.comparisons, root, **how), 1):
            first, second = result.rows
            assert second.verdict is not None
            count += second.verdict.outcome in ("better", "worse")
            rates = f"lr {first.lr:g} and {second.lr:g}"
            print(
                f"{number}: {rates}: {second.verdict.word}, p = {second.verdict.p:.3f}; {count} so far",
                flush=True,
            )
        print(f"{count} verdicts in {given.comparisons} comparisons of AdamW with itself")


if __name__ == "__main__":
    main()
