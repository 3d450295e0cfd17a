"""study.json: the study as it was before its first run, in the folder of its runs.

A later call may add seeds or optimizers, and change the baseline and descriptions; all else is fixed. Changes made
after results had been seen are kept with it (`history.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from adaxlab import files, history, optimizers, spec, task
from adaxlab.errors import LabError, StoreError
from adaxlab.study import GROWS, WORDS, Study


def place(root: Path | str, study: Study) -> Path:
    """The file of a study in the store `root`."""
    return Path(root) / spec.folder(study.name) / "study.json"


def read(path: Path) -> tuple[Study, tuple[str, ...]]:
    """The study in a file, and its changes made after results had been seen, as sentences."""
    content = files.read_json(path)
    known = {each.name for each in fields(Study)}
    try:
        study = Study.from_data({key: value for key, value in content.items() if key in known})
        return study, history.sentences(content.get("history", []))
    except (LabError, KeyError, TypeError, AttributeError) as error:
        raise _other_version(path) from error


def write(study: Study, root: Path | str, look_around: bool = False) -> None:
    """Write the file, before any run. Raises if a study of that name with other settings exists. With `look_around`,
    a new file names the studies whose results were there before it."""
    path = place(root, study)
    content = {"schema": spec.SCHEMA, **study.data(), **_sources(study)}
    if path.exists():
        before = files.read_json(path)
        if not isinstance(before, dict) or before.get("schema") != spec.SCHEMA or not _has_rows(before):
            raise _other_version(path)
        before |= {"task": task.plain(before["task"]), "sources": sources(path)}
        before = before if before["sources"] else {k: v for k, v in before.items() if k != "sources"}
        for key, value in content.items():
            if key not in (*GROWS, *WORDS, "baseline", "sources") and before.get(key) != value:
                raise LabError(
                    f"study {study.name}: {_change(key, before.get(key), value)}; choose another --study"
                )
        for row in before["rows"]:
            now = next((r for r in content["rows"] if r["name"] == row["name"]), row)
            for key in {**row, **now}:
                if row.get(key) != now.get(key):
                    raise LabError(
                        f"study {study.name}: {key} of {row['name']} was {row.get(key)!r} and cannot become "
                        f"{now.get(key)!r}; choose another --study"
                    )
        events = before.pop("history", [])
        if before == content:
            return
        if _has_results(path.parent):
            events = [*events, *history.changes(before, content)]
        content |= {"history": events} if events else {}
    elif look_around and (names := earlier(study, root)):
        content |= {"history": [{"changed": "earlier", "studies": names}]}
    files.make_folder(path.parent)
    files.write_json(path, content)


def earlier(study: Study, root: Path | str) -> list[str]:
    """The other studies in `root` of the same task, with some of the same seeds, that have results."""
    found = []
    for path in sorted(Path(root).glob("*/study.json")):
        with suppress(LabError, KeyError, TypeError, AttributeError):
            other, _ = read(path)
            same = other.task == study.task and set(other.all_seeds) & set(study.all_seeds)
            if same and other.name != study.name and _has_results(path.parent):
                found.append(other.name)
    return found


def _sources(study: Study) -> dict[str, dict[str, str]]:
    """The digests of the user's files: of the task, with its data, by its name, of the optimizers by row."""
    found = {study.task: study.version()}
    found |= {row.name: optimizers.source_digest(row.method) for row in study.rows}
    known = {name: digest for name, digest in found.items() if digest}
    return {"sources": known} if known else {}


def sources(path: Path) -> dict[str, str]:
    """The digests in a study's file; {} if there are no valid ones."""
    found = None
    with suppress(LabError, AttributeError):
        found = files.read_json(path).get("sources") if path.is_file() else None
    return {task.plain(name): digest for name, digest in found.items()} if isinstance(found, dict) else {}


def _change(key: str, before: Any, now: Any) -> str:
    """
    >>> _change("rule", {"margin": 0.0, "least": 3}, {"margin": 0.1, "least": 3}), _change("epochs", 3, 2)
    ('rule: margin was 0.0 and cannot become 0.1', 'epochs was 3 and cannot become 2')
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        return f"{key}: " + ", ".join(_change(name, before.get(name), now.get(name)) for name in names)
    return f"{key} was {before!r} and cannot become {now!r}"


def _other_version(path: Path) -> StoreError:
    return StoreError(f"{path}: study of another version; left untouched, choose another --study or --out")


def _has_results(folder: Path) -> bool:
    """Whether a final run of the study has ended."""
    ended = (file.parent / "spec.json" for file in folder.glob("*/done.json"))
    return any(files.read_json(path).get("purpose") == "final" for path in ended if path.exists())


def _has_rows(content: Mapping[str, Any]) -> bool:
    rows = content.get("rows")
    return isinstance(rows, list) and all(isinstance(row, dict) and "name" in row for row in rows)
