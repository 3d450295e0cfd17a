"""A first learning rate to try: final results over a grid of lr for AdamW and AdaX-W, on a CNN and a transformer.

Not an experiment of the paper. Every (task, optimizer, lr) has the same seeds and epochs, and the test metric is shown
for all of them, so nothing is tuned or selected.

    adax reproduce first-lr --out runs            about 15 minutes on two cores; repeat the command to resume
    python -m adaxlab.paper.first_lr --jobs 8       the same without the command line's packages
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from adaxlab import environment, files, settings, spec, stats, store, task
from adaxlab.execute import process

STUDY = "first-lr"
TASKS = ("digits", "sorting")
OPTIMIZERS = ("adamw", "adaxw")
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 5e-3, 1e-2, 3e-2)
SEEDS = 3
RECORD = Path("records/first_lr.json")


def specs(tasks: Iterable[str] = TASKS, seeds: int = SEEDS) -> list[dict[str, Any]]:
    """Return the specifications of all runs. lr*weight_decay is 1e-4, and b2*T is 2 for AdaX-W."""
    found = []
    for name in tasks:
        made = task.load(name)
        size = len(made.data()["train"][0])
        epochs, batch = getattr(made, "epochs", 10), getattr(made, "batch_size", 64)
        steps = epochs * -(-size // batch)
        for optimizer in OPTIMIZERS:
            for lr in RATES:
                options: dict[str, Any] = {"lr": lr, "weight_decay": 1e-4 / lr}
                if optimizer == "adaxw":
                    options["betas"] = (0.9, round(2 / steps, 6))
                for seed in range(seeds):
                    found.append(
                        spec.make(
                            study=STUDY,
                            task=name,
                            optimizer=optimizer,
                            options=options,
                            epochs=epochs,
                            batch_size=batch,
                            seed=seed,
                            schedule=getattr(made, "schedule", "constant"),
                        )
                    )
    return found


def _one(run: dict[str, Any], root: str, how: settings.Settings) -> None:
    process.run(run, root, how)


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


def run(name: str, out: str | Path, jobs: int = 2, device: str = "cpu", record: str = str(RECORD)) -> Path:
    """Execute the missing runs of the study and write the summary to `record`."""
    how = settings.Settings(device=device)
    todo = specs()
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_one, each, str(out), how) for each in todo]
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            if done % 6 == 0 or done == len(todo):
                print(f"{done} of {len(todo)} runs", flush=True)
    rows = summary(store.load_runs(Path(out) / STUDY))
    what = environment.describe(settings.choose_device(device), how.threads)
    Path(record).parent.mkdir(parents=True, exist_ok=True)
    files.write_json(Path(record), {"study": STUDY, "environment": what, "rows": rows})
    return Path(record)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="runs")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--record", default=str(RECORD))
    given = parser.parse_args()
    print(run(STUDY, given.out, given.jobs, given.device, given.record))


if __name__ == "__main__":
    main()
