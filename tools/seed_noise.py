"""How far seeds differ in the study `gpt-noise`: standard deviation over seeds of each row, and of paired differences.

    python tools/seed_noise.py [runs]      a store (the folder of `adax reproduce gpt-noise --out runs`), or records/

`steady` is the standard deviation when the mean of the last three evaluations is taken instead of the last one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from adaxlab import records, spec, stats, store
from adaxlab.paper.gpt import NOISE


def main(place: str = "runs") -> None:
    folder = Path(place) / spec.folder(NOISE.name)
    runs = store.load_runs(folder) if folder.is_dir() else records.load(Path(place), NOISE.name)
    ends: dict[str, dict[int, float]] = {row.name: {} for row in NOISE.rows}
    late: dict[str, dict[int, float]] = {row.name: {} for row in NOISE.rows}
    seconds: dict[str, list[float]] = {row.name: [] for row in NOISE.rows}
    for run in runs:
        if run.done and run.status == "finished" and run.row in ends:
            ends[run.row][run.spec["seed"]] = run.done["metric"]
            late[run.row][run.spec["seed"]] = stats.mean([line["metric"] for line in run.metrics[-3:]])
            seconds[run.row].append(run.done["seconds"])
    print(
        f"{'row':18} {'n':>2} {'mean':>8} {'sd':>8} {'range':>8} {'steady':>8} {'paired sd':>10} {'s a run':>8}"
    )
    for row, values in ends.items():
        if len(values) < 2:
            print(f"{row:18} {len(values):>2}")
            continue
        seen = list(values.values())
        pairs = stats.paired(values, ends["adamw"], higher_is_better=False)
        paired = f"{stats.sd(list(pairs.values())):.5f}" if row != "adamw" and len(pairs) > 1 else ""
        print(
            f"{row:18} {len(seen):>2} {stats.mean(seen):8.4f} {stats.sd(seen):8.5f} {max(seen) - min(seen):8.5f} "
            f"{stats.sd(list(late[row].values())):8.5f} {paired:>10} {stats.mean(seconds[row]):8.1f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
