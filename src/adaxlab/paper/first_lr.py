"""A first learning rate to try: final results over a grid of lr for AdamW and AdaX-W, on a CNN and a transformer.

Not an experiment of the paper. Every (task, optimizer, lr) has the same seeds and epochs, and the test metric is shown
for all of them, so nothing is tuned or selected.

    adax reproduce first-lr --out runs            about 15 minutes on two cores; repeat the command to resume

With `--records records` the summary is written there, for docs/migrating.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from adaxlab import driver, environment, files, progress, settings, stats, store, workers
from adaxlab.study import Row, Study

TASKS = ("digits", "sorting")
B2_STEPS = {"adamw": None, "adaxw": 2.0}
"""The optimizers, and b2*T."""
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 5e-3, 1e-2, 3e-2)
SEEDS = 3


def study(task: str, seeds: int = SEEDS, epochs: int = 0) -> Study:
    """The runs on one task: a row for each optimizer and lr, at lr*weight_decay = 1e-4."""
    rows = (
        Row(f"{method} lr {lr:g}", method, {"lr": lr}, lr_decay=1e-4, b2_steps=b2_steps)
        for method, b2_steps in B2_STEPS.items()
        for lr in RATES
    )
    return Study(task, tuple(rows), f"first-lr/{task}", seeds=seeds, epochs=epochs).complete()


def summary(records: Iterable[store.RunRecord]) -> list[dict[str, Any]]:
    """Return a row for every (task, optimizer, lr): n, mean, values, and the number of diverged runs."""
    cells: dict[tuple[str, str, float], list[store.RunRecord]] = {}
    for record in records:
        if record.done is not None:
            key = (record.spec["task"], record.spec["optimizer"], record.spec["options"]["lr"])
            cells.setdefault(key, []).append(record)
    rows = []
    for (name, optimizer, lr), runs in sorted(cells.items()):
        values = [r.done["metric"] for r in runs if r.done and r.done["status"] == "finished"]
        rows.append(
            {
                "task": name,
                "optimizer": optimizer,
                "lr": lr,
                "b2": runs[0].spec["options"]["betas"][1],
                "n": len(values),
                "diverged": len(runs) - len(values),
                "mean": stats.mean(values) if values else None,
                "values": values,
                "metric": runs[0].done["metric_name"] if runs[0].done else None,
                "higher_is_better": runs[0].done["higher_is_better"] if runs[0].done else None,
            }
        )
    return rows


def run(
    name: str,
    out: str | Path,
    jobs: int = 2,
    device: str = "cpu",
    seeds: int = SEEDS,
    epochs: int = 0,
    records: str = "",
    quiet: bool = False,
) -> Path:
    """Execute the missing runs and write the summary, first_lr.json, to `records`, or else to `out`."""
    how = settings.Settings(device=device)
    made: list[store.RunRecord] = []
    for task in TASKS:
        given = study(task, seeds, epochs)
        with workers.helpers(given, out, how, jobs), progress.watcher(quiet) as watcher:
            made += driver.carry_out(given, out, how, watcher) or []
    what = environment.describe(settings.choose_device(device), how.threads)
    path = Path(records or out) / "first_lr.json"
    files.make_folder(path.parent)
    files.write_json(path, {"study": name, "environment": what, "rows": summary(made)})
    return path
