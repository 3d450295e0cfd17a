"""`adax reproduce reddi | synthetic | theory`: compute, show progress, write records, figures and claims.

    from adaxopt.lab.theory.cli import run
    run("synthetic", Path("runs/synthetic"))

writes into `out`

    <name>.json               the record: settings, numbers, versions, claims
    <name>-claims.md          the claims as a table
    images/theory-*.svg|png   the figures, on light and dark paper
    <name>.html               the same as one page that works offline

`python -m adaxopt.lab.theory.cli --update` runs all three and renews records/theory, docs/images and docs/claims.md;
`--redraw` makes the last two from the records that are there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adaxopt.lab import files
from adaxopt.lab.errors import LabError
from adaxopt.lab.theory import claims, foundations, reddi, synthetic
from adaxopt.lab.theory.record import Tick

STUDIES: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "synthetic": (synthetic.study, {"most": 20_000, "methods": 5}),
    "reddi": (reddi.study, {"steps": 200_000, "seeds": 4}),
    "theory": (
        foundations.study,
        {"steps": 2000, "rate_steps": 3000, "seeds": 16, "starts": 30, "full": False},
    ),
}
"""Each study and the options of its quick form."""
TITLES = {
    "synthetic": "Problem (4): Adam's problem revisited",
    "reddi": "Problem (3): when Adam goes the wrong way",
    "theory": "AdaX: memory, lemmas and rates",
}


def run(
    name: str,
    out: Path,
    *,
    quick: bool = False,
    figures: bool = True,
    page: bool = True,
    table: bool = True,
    images: Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Run a study and write everything into `out`; returns the record. `options` go to the study (steps, seeds...).

    `quick` is a reduced form of a few seconds; `images` puts the figures elsewhere; `progress` is shown on a
    terminal unless it says otherwise.
    """
    if name not in STUDIES:
        raise LabError(f"study {name!r}: unknown; known are {', '.join(STUDIES)}")
    make, reduced = STUDIES[name]
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.failed(out, error) from error
    began = time.perf_counter()
    with _progress(TITLES[name], progress) as tick:
        record = make(**{**(reduced if quick else {}), **options}, tick=tick)
        files.write_json(out / f"{name}.json", record)
        if table:
            files.write(out / f"{name}-claims.md", claims_table(record, time.perf_counter() - began).encode())
        if figures or page:
            _draw(record, out, images or out / "images", figures, page, tick)
    return record


def _draw(record: dict[str, Any], out: Path, images: Path, figures: bool, page: bool, tick: Tick) -> None:
    from adaxopt.lab.report import write_report
    from adaxopt.lab.theory.figures import for_record, save

    drawn = for_record(record)
    if figures:
        tick("figures")
        save(drawn, images)
    if page:
        tick("page")
        rows = [{**row, "text": row["claim"]} for row in record["claims"]]
        shown = [(f.title, f.caption, f.chart) for f in drawn]
        write_report(
            [],
            out / f"{record['name']}.html",
            TITLES[record["name"]],
            claims=rows,
            figures=shown,
            lead=record["what"] + ".",
        )


def claims_table(record: dict[str, Any], seconds: float) -> str:
    """The claims of one record as a page of Markdown."""
    lines = [f"# {TITLES[record['name']]}", "", f"{record['what']}. Computed in {seconds:.0f} s.", ""]
    lines += ["| id | claim | computed | n | verdict |", "|---|---|---|---|---|"]
    for row in record["claims"]:
        cells = (
            row["id"],
            row["claim"],
            row["ours"],
            "" if row["n"] is None else f"{row['n']:,}",
            row["verdict"],
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


@contextmanager
def _progress(title: str, wanted: bool | None) -> Iterator[Tick]:
    """A spinner with the part at work and the time; nothing where standard error is not a terminal."""
    if not (sys.stderr.isatty() if wanted is None else wanted):
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("[bold]{task.description}"),
        TextColumn("{task.fields[part]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=None, part="")
        yield lambda what: bar.update(task, part=what)
        bar.update(task, part="done", total=1, completed=1)


def redraw(records: Path = Path("records/theory"), images: Path = Path("docs/images")) -> None:
    """docs/images/theory-*.svg from the committed records."""
    from adaxopt.lab.theory.figures import for_record, save

    for path in sorted(records.glob("*.json")):
        save(for_record(files.read_json(path)), images, formats=("svg",))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The paper's sections 2-4, computed")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(STUDIES)}; all if none")
    parser.add_argument("--out", type=Path, default=Path("runs/theory"))
    parser.add_argument("--quick", action="store_true", help="reduced sizes, a few seconds")
    parser.add_argument(
        "--update", action="store_true", help="renew records/theory, docs/images and docs/claims.md"
    )
    parser.add_argument(
        "--redraw", action="store_true", help="renew docs/images and docs/claims.md from the records"
    )
    options = parser.parse_args(arguments)
    for name in [] if options.redraw else options.names or STUDIES:
        out = Path("records/theory") if options.update else options.out
        run(
            name,
            out,
            quick=options.quick,
            figures=not options.update,
            page=not options.update,
            table=not options.update,
        )
    if options.update or options.redraw:
        redraw()
        return claims.main([])
    return 0


if __name__ == "__main__":
    sys.exit(main())
