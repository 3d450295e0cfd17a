"""`python -m adaxlab.gpt STUDY --data PLACE`: a study without the command line's packages."""

from __future__ import annotations

import sys

from adaxlab import grid
from adaxlab.gpt import studies

if __name__ == "__main__":
    sys.exit(grid.main(studies.run, studies.NAMES, "adaxlab.gpt"))
