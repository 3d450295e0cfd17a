"""Comparisons made from final metrics."""

from __future__ import annotations

from made_records import run

from adaxlab import summary
from adaxlab.study import Row, Study, Tuning

ADAMW = (0.90, 0.91, 0.89, 0.90, 0.92)


def result(given=True, tuned=True, higher=True, history=(), seconds=80.0, curves=None, **rows):
    """A comparison from the final metrics of each row; None is a run that diverged."""
    options = {} if tuned or not given else {"lr": 1e-3}
    study = Study(
        "digits",
        tuple(Row(name, options=options, b2_steps=3.0 if name == "adaxw" else None) for name in rows),
        "s",
        seeds=max(map(len, rows.values())),
        tuning=Tuning(2) if tuned else None,
        baseline="adamw",
    )
    records = []
    for name, values in rows.items():
        for seed, value in enumerate(values):
            made = run(
                "s", name, value, seed=seed, lr=3e-3, higher=higher, metrics=(curves or {}).get(name, ())
            )
            made.spec["options"]["betas"] = [0.9, 3 / 440 if name == "adaxw" else 0.999]
            made.done.update(steps=440, seconds=seconds)
            records.append(made)
        trials = (None, 0.5) if name == "sgdm" else (0.4, 0.5)
        records += [
            run("s", name, score, lr=10.0**-i, purpose="tune", higher=higher, trial=i)
            for i, score in enumerate(trials)
        ]
    return summary.summarise(study, records, history)


def moved(values, *by):
    return tuple(value + step for value, step in zip(values, by, strict=True))


LIKE = moved(ADAMW, 0.02, -0.01, 0.03, -0.01, 0.01)
BETTER = moved(ADAMW, 0.05, 0.06, 0.04, 0.05, 0.055)
WORSE = moved(ADAMW, -0.05, -0.06, -0.04, -0.05, -0.055)
