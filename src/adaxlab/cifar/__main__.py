"""Studies on a bare machine, torch and numpy only: `python -m adaxlab.cifar table2 --data FOLDER --out FOLDER`.

Several names (`trace beta1 beta2`) are carried out together, in common stacks where recipe and data are the same.
"""

from __future__ import annotations

import argparse
import sys

from adaxlab.cifar import studies
from adaxlab.errors import LabError


def main() -> int:
    """Parse the arguments, run, and exit with 0 when the studies are complete, 3 when time was up before.

    Wrong input is one line on stderr and 2, a damaged record or checkpoint 1.
    """
    parser = argparse.ArgumentParser(prog="python -m adaxlab.cifar", description=__doc__)
    parser.add_argument("study", nargs="+", choices=[name.split("/")[1] for name in studies.NAMES])
    parser.add_argument("--data", required=True)
    parser.add_argument("--out", default="runs")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=0, help="0: the study's own")
    parser.add_argument("--epochs", type=int, default=0, help="0: the study's own")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--checkpoint-seconds", type=float, default=120.0)
    parser.add_argument("--per-stack", type=int, default=25)
    parser.add_argument("--precision", choices=studies.PRECISIONS, default="bf16")
    parser.add_argument("--reuse", default="")
    given = vars(parser.parse_args())
    try:
        complete = studies.run(given.pop("study"), tell=lambda text: print(text, flush=True), **given)
    except LabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())
