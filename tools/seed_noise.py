"""How far seeds differ in a study: standard deviation over seeds of each row, and of paired differences to another row.

    python tools/seed_noise.py gpt-noise [runs]     a store (`adax reproduce gpt-noise --out runs`), a folder of records
    python tools/seed_noise.py gpt-quiet            such as records/unfinished, or records/ (the default)

A row is paired with the row of the same setting under AdamW, or with `adamw`. `steady` is the standard deviation when
the mean of the last three evaluations is taken instead of the last one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from adaxlab import records, spec, stats, store
from adaxlab.paper import catalogue


def main(name: str, place: str = "records") -> None:
    folder = Path(place) / spec.folder(name)
    runs = store.load_runs(folder) if folder.is_dir() else records.load(Path(place), name)
    rows = [row.name for row in catalogue.study(name).rows]
    ends: dict[str, dict[int, float]] = {row: {} for row in rows}
    late: dict[str, dict[int, float]] = {row: {} for row in rows}
    seconds: dict[str, list[float]] = {row: [] for row in rows}
    for run in runs:
        if run.done and run.status == "finished" and run.row in ends:
            ends[run.row][run.spec["seed"]] = run.done["metric"]
            late[run.row][run.spec["seed"]] = stats.mean([line["metric"] for line in run.metrics[-3:]])
            seconds[run.row].append(run.done["seconds"])
    print(
        f"{'row':24} {'n':>2} {'mean':>8} {'sd':>8} {'range':>8} {'steady':>8} {'paired sd':>10} {'s a run':>8}"
    )
    for row, values in ends.items():
        if len(values) < 2:
            print(f"{row:24} {len(values):>2}")
            continue
        seen = list(values.values())
        other = row.replace("adaxw", "adamw") if row.replace("adaxw", "adamw") != row else "adamw"
        pairs = stats.paired(values, ends.get(other, {}), higher_is_better=False)
        paired = f"{stats.sd(list(pairs.values())):.5f}" if row != other and len(pairs) > 1 else ""
        print(
            f"{row:24} {len(seen):>2} {stats.mean(seen):8.4f} {stats.sd(seen):8.5f} {max(seen) - min(seen):8.5f} "
            f"{stats.sd(list(late[row].values())):8.5f} {paired:>10} {stats.mean(seconds[row]):8.1f}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
