"""`python -m adaxopt.lab.gpt STUDY --data PLACE`: a study without the command line's packages."""

from __future__ import annotations

import sys

from adaxopt.lab import grid
from adaxopt.lab.gpt import studies

if __name__ == "__main__":
    sys.exit(grid.main(studies.run, studies.NAMES, "adaxopt.lab.gpt"))
