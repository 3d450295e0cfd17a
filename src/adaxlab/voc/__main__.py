"""`python -m adaxlab.voc camvid tuning --data FOLDER --weights FILE --out FOLDER`: studies on a bare machine.

Needs torch, numpy and Pillow. Exits with 0 when the studies are complete, 3 when time (--seconds) was up before: the
same command goes on.
"""

from __future__ import annotations

import argparse
import sys

from adaxlab.data.fetch import say
from adaxlab.errors import LabError
from adaxlab.options import pairs
from adaxlab.voc import studies
from adaxlab.voc.book import STUDIES


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m adaxlab.voc", description=__doc__)
    parser.add_argument("study", nargs="+", choices=list(STUDIES))
    for name in ("data", "weights"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument("--record", default="", help="where a complete study goes as well; {} is its name")
    parser.add_argument("--reuse", default="", help="a record, or a folder of records, to go on from")
    parser.add_argument("--out", default="runs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seeds", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="OPTION=VALUE", help="options of the task")
    given = vars(parser.parse_args(arguments))
    more = pairs(given.pop("set"))
    try:
        done = studies.run(given.pop("study"), given.pop("out"), **given, **more)
    except LabError as error:
        say(f"voc: {error}")
        return error.exit_code
    if done is False:
        return 3
    say(f"record: {done}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
