"""`python -m adaxopt.lab.language STUDY --data PLACE`: a study without the command line's packages."""

from __future__ import annotations

import sys

from adaxopt.lab import grid
from adaxopt.lab.language import studies

if __name__ == "__main__":
    sys.exit(grid.main(studies.run, studies.NAMES, "adaxopt.lab.language"))
