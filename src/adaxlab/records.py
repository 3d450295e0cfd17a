"""Load the committed records of a study, from which tables, figures and verdicts are computed, and say where they were
made.

records/STUDY.jsonl        the runs of a study, written by `store.export`
records/FAMILY/speed.json  milliseconds per step in alternating rounds; each round becomes a run record whose seed is
                           the number of the round
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adaxlab import environment, spec, store
from adaxlab.store import RunRecord
from adaxlab.study import Study

FOLDER = Path("records")


def load(root: Path, study: str) -> list[RunRecord]:
    """Return the runs of a study such as `cifar10/table2` that have ended; an empty list if it was not run."""
    path = root / f"{study}.jsonl"
    if path.stem == "speed":
        return list(_rounds(path.with_suffix(".json"), study))
    if not path.is_file():
        return []
    return store.read_export(path)


def _rounds(path: Path, study: str) -> Iterator[RunRecord]:
    record = json.loads(path.read_text()) if path.is_file() else {}
    env = {"commit": record.get("environment", {}).get("commit")}
    record = record.get("in_turn", record)
    times = record.get("ms", {}) if record.get("study", "tiny") == "tiny" else {}  # the claim is about `tiny`
    for row, each in times.items():
        for round, ms in enumerate(each):
            spec = {"study": study, "row": row, "optimizer": row, "seed": round, "purpose": "final"}
            yield RunRecord(spec, env, [], {"status": "finished", "step_ms": ms}, path)


UNFINISHED = "unfinished"
"""The folder of records/ for runs of studies that are not complete."""


def made_at(runs: Iterable[RunRecord]) -> str:
    """Devices and versions, with the number of runs: '6 runs on NVIDIA H200, torch 2.11'."""
    counts: dict[str, int] = {}
    for run in sorted(runs, key=_place):
        versions, hardware = run.env.get("versions", {}), run.env.get("hardware", {})
        where = f"{hardware.get('device')}, torch {versions.get('torch')}"
        counts[where] = counts.get(where, 0) + 1
    return "; ".join(f"{count} runs on {where}" for where, count in counts.items())


def _place(run: RunRecord) -> str:
    versions, hardware = run.env.get("versions", {}), run.env.get("hardware", {})
    return spec.canonical([run.env.get("commit"), hardware.get("device"), versions.get("torch")])


def not_complete(study: Study, root: Path) -> str:
    """The text of a page for a study without a complete record; its ended runs are in records/unfinished/."""
    if (count := ended(study, root)) is None:
        return f"*Not run yet (`adax reproduce {study.name}`).*"
    return (
        f"*Not complete: {count} of {study.runs()} runs have ended ([records](../{_unfinished(study)})); results are "
        "shown when all have.*"
    )


def ended(study: Study, root: Path) -> int | None:
    """The number of ended runs of an incomplete study; None if there is no record of them."""
    path = root / _unfinished(study)
    if not path.is_file():
        return None
    return sum(run.done is not None and _fits(study, run) for run in store.read_export(path))


def _unfinished(study: Study) -> str:
    return f"records/{unfinished(study)}"


def unfinished(study: Study) -> str:
    """The path of the runs of an incomplete study, relative to a folder of records."""
    return f"{UNFINISHED}/{spec.folder(study.name)}.jsonl"


@contextmanager
def resumed(path: Path, out: Path, study: Study) -> Iterator[None]:
    """Import the runs in `path` into the store `out`; after the block, export the ended runs of the study to `path`."""
    if path.is_file():
        store.bring(path, out)
    try:
        yield
    finally:
        keep(out / spec.folder(study.name), path)


def keep(folder: Path, path: Path) -> list[RunRecord]:
    """Export the ended runs of a study's folder in a store to `path`, if they are by committed code."""
    ended = [run for run in store.load_runs(folder) if run.done] if folder.is_dir() else []
    if ended := [run for run in ended if environment.is_clean(run.env.get("commit"))]:
        store.export(ended, path)
    return ended


def superseded(root: Path) -> list[Path]:
    """Records of unfinished studies that are beside the complete record of the same study."""
    found = []
    for path in sorted((root / UNFINISHED).glob("*.jsonl")):
        names = {run.spec["study"] for run in store.read_export(path)}
        complete = (spec.folder(name) for name in names if (root / f"{name}.jsonl").is_file())
        found += [path] if path.stem in complete else []
    return found


def _fits(study: Study, run: RunRecord) -> bool:
    """Whether the run belongs to the current version of the study, as far as can be determined without its data."""
    given = run.spec
    row = next((row for row in study.rows if row.name == run.row), None)
    if row is None or (given["purpose"] == "final" and given["seed"] not in study.all_seeds):
        return False
    wanted = json.loads(spec.canonical(spec.without_places(study.options_of(row))))
    return (
        given["epochs"] == study.length(given["purpose"])
        and spec.without_places(given["task_options"]) == wanted
    )
