"""`python -m adaxlab.language STUDY --data PLACE`: a study without the command line's packages."""

from __future__ import annotations

import sys

from adaxlab import grid
from adaxlab.language import studies

if __name__ == "__main__":
    sys.exit(grid.main(studies.run, studies.NAMES, "adaxlab.language"))
