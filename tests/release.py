"""Plugin of `make test-oldest` and `make test-newest`: keeps what the suite gave on one release of torch.

`pytest -p release --release-record records/torch_releases.json`; `integrations/render.py` makes a table of it.
"""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path


def pytest_addoption(parser):
    parser.addoption("--release-record", metavar="FILE", help="write the outcome under torch's version")


def pytest_terminal_summary(terminalreporter, config):
    path = config.getoption("release_record")
    if not path:
        return
    counts = {
        kind: len(terminalreporter.stats.get(kind, ())) for kind in ("passed", "failed", "error", "skipped")
    }
    versions = {name: metadata.version(name) for name in ("torch", "triton", "numpy")}
    kept = json.loads(Path(path).read_text()) if Path(path).exists() else []
    kept = [line for line in kept if line["versions"]["torch"] != versions["torch"]]
    kept.append({"versions": {"python": platform.python_version(), **versions}, **counts})
    kept.sort(key=lambda line: [int(part) for part in line["versions"]["torch"].split("+")[0].split(".")])
    Path(path).write_text(json.dumps(kept, indent=1) + "\n")
