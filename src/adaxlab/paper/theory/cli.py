"""`adax reproduce reddi | synthetic | theory`: compute, show progress, write the record and a page.

    from adaxlab.paper.theory.cli import run
    run("synthetic", Path("runs"))

writes into `runs/synthetic/`

    synthetic.json            the record: settings, numbers, versions, claims

`adax reproduce` then prints the verdicts. With `--records records` the record goes to records/theory, from which
`python -m adaxlab.paper.figures` draws docs/images and `adax claims` writes docs/claims*.md.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adaxlab import files
from adaxlab.errors import LabError, check_known, unknown
from adaxlab.paper.theory import foundations, reddi, synthetic
from adaxlab.paper.theory.record import Tick

STUDIES: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "synthetic": (synthetic.study, {"most": 20_000, "methods": 5}),
    "reddi": (reddi.study, {"steps": 200_000, "seeds": 4}),
    "theory": (
        foundations.study,
        {"steps": 2000, "rate_steps": 3000, "seeds": 16, "full": False},
    ),
}
"""The function of each study, and the options of its quick version."""
TITLES = {
    "synthetic": "Problem (4): Adam's problem revisited",
    "reddi": "Problem (3): when Adam goes the wrong way",
    "theory": "AdaX: memory, lemmas and rates",
}


def compute(
    name: str, *, quick: bool = False, progress: bool | None = None, **options: Any
) -> dict[str, Any]:
    """Return the record of a study.

    `quick` computes a reduced version in a few seconds; `options` are those of the study (steps, seeds, ...). Progress
    is shown on a terminal unless `progress` is False.
    """
    check_known("study", STUDIES, name)
    make, reduced = STUDIES[name]
    known = [key for key in inspect.signature(make).parameters if key != "tick"]
    for key, value in options.items():
        if key not in known:
            raise unknown(f"setting of study {name}", key, [*known, "quick", "page", "records"])
        if not isinstance(value, int) or value < (key == "seeds") + 1 - (key == "full"):
            least = "true or false" if key == "full" else f"a whole number >= {2 if key == 'seeds' else 1}"
            raise LabError(f"{key}={value!r}: must be {least}")
    with _progress(TITLES[name], progress) as tick:
        return make(**{**(reduced if quick else {}), **options}, tick=tick)


def run(
    name: str,
    out: Path,
    *,
    quick: bool = False,
    records: str = "",
    quiet: bool = False,
    **options: Any,
) -> Path:
    """Compute a study, write its record and its page to `out/name` (`records`: the record alone, to that folder of
    records), and return the path of the record."""
    record = compute(name, quick=quick, progress=False if quiet else None, **options)
    folder = Path(records) / "theory" if records else Path(out) / name
    files.make_folder(folder)
    path = folder / f"{name}.json"
    files.write_json(path, record)
    return path


@contextmanager
def _progress(title: str, wanted: bool | None) -> Iterator[Tick]:
    """Show a spinner with the current part and the time; nothing if standard error is not a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    words = (TextColumn("[bold]{task.description}"), TextColumn("{task.fields[part]}"))
    with Progress(SpinnerColumn(), *words, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None, part="")
        yield lambda what: bar.update(task, part=what)
        bar.update(task, part="done", total=1, completed=1)
