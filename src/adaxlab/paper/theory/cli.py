"""`adax reproduce reddi | synthetic | theory`: compute, show progress, write records, figures and claims.

    from adaxlab.paper.theory.cli import run
    run("synthetic", Path("runs"))

writes into `runs/synthetic/`

    synthetic.json            the record: settings, numbers, versions, claims
    claims.md                 the claims as a table
    images/theory-*.svg|png   the figures, for light and dark backgrounds
    report.html               the same as one page that works offline

`adax reproduce` then prints the verdicts. `python -m adaxlab.paper.theory.cli --update` computes all three studies and
updates records/theory and docs/images; `--redraw` updates only the figures. `adax claims` then writes docs/claims.md.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adaxlab import files
from adaxlab.errors import LabError, unknown
from adaxlab.paper.theory import foundations, reddi, synthetic
from adaxlab.paper.theory.record import Tick

STUDIES: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "synthetic": (synthetic.study, {"most": 20_000, "methods": 5}),
    "reddi": (reddi.study, {"steps": 200_000, "seeds": 4}),
    "theory": (
        foundations.study,
        {"steps": 2000, "rate_steps": 3000, "seeds": 16, "starts": 30, "full": False},
    ),
}
"""The function of each study, and the options of its quick version."""
TITLES = {
    "synthetic": "Problem (4): Adam's problem revisited",
    "reddi": "Problem (3): when Adam goes the wrong way",
    "theory": "AdaX: memory, lemmas and rates",
}
RECORDS, IMAGES = Path("records/theory"), Path("docs/images")


def compute(
    name: str, *, quick: bool = False, progress: bool | None = None, **options: Any
) -> dict[str, Any]:
    """Return the record of a study.

    `quick` computes a reduced version in a few seconds; `options` are those of the study (steps, seeds, ...). Progress
    is shown on a terminal unless `progress` is False.
    """
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    make, reduced = STUDIES[name]
    known = [key for key in inspect.signature(make).parameters if key != "tick"]
    for key, value in options.items():
        if key not in known:
            raise unknown(f"override of study {name}", key, [*known, "quick", "figures", "page"])
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
    figures: bool = True,
    page: bool = True,
    progress: bool | None = None,
    **options: Any,
) -> Path:
    """Compute a study, write its files to `out/name`, and return the path of the record."""
    began = time.perf_counter()
    record = compute(name, quick=quick, progress=progress, **options)
    folder = Path(out) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.failed(folder, error) from error
    path = folder / f"{name}.json"
    files.write_json(path, record)
    files.write(folder / "claims.md", table(record, time.perf_counter() - began).encode())
    if figures or page:
        _draw(record, folder, figures, page)
    return path


def _draw(record: dict[str, Any], folder: Path, figures: bool, page: bool) -> None:
    from adaxlab.paper.theory.figures import for_record, save
    from adaxlab.report import write_report

    drawn = for_record(record)
    if figures:
        save(drawn, folder / "images")
    if page:
        rows = [{**row, "text": row["claim"]} for row in record["claims"]]
        shown = [(f.title, f.caption, f.chart) for f in drawn]
        title, lead = TITLES[record["name"]], f"{record['what']}."
        write_report([], folder / "report.html", title, claims=rows, figures=shown, lead=lead)


def table(record: dict[str, Any], seconds: float) -> str:
    """Return the claims of one record as a Markdown page."""
    lines = [f"# {TITLES[record['name']]}", "", f"{record['what']}. Computed in {seconds:.0f} s.", ""]
    lines += ["| id | claim | computed | n | verdict |", "|---|---|---|---|---|"]
    for row in record["claims"]:
        cells = (row["id"], row["claim"], row["ours"], _count(row["n"]), row["verdict"])
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _count(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


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


def redraw() -> int:
    """docs/images/theory-*.svg from the committed records."""
    from adaxlab.paper.theory.figures import for_record, save

    for path in sorted(RECORDS.glob("*.json")):
        save(for_record(files.read_json(path)), IMAGES, formats=("svg",))
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The paper's sections 2-4, computed")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(STUDIES)}; all if none")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--quick", action="store_true", help="reduced sizes, a few seconds")
    parser.add_argument("--update", action="store_true", help="renew records/theory and docs/images")
    parser.add_argument("--redraw", action="store_true", help="renew docs/images only")
    options = parser.parse_args(arguments)
    try:
        for name in [] if options.redraw else options.names or STUDIES:
            if options.update:
                RECORDS.mkdir(parents=True, exist_ok=True)
                files.write_json(RECORDS / f"{name}.json", compute(name, quick=options.quick))
            else:
                print(run(name, options.out, quick=options.quick))
    except LabError as error:
        print(f"theory: {error}", file=sys.stderr)
        return error.exit_code
    return redraw() if options.update or options.redraw else 0


if __name__ == "__main__":
    sys.exit(main())
