"""More processes for one study: each works through the same plans from another start and leaves what is held."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from adaxlab.errors import LabError
from adaxlab.settings import Settings
from adaxlab.study import Study


@contextmanager
def helpers(
    study: Study, root: Path | str, settings: Settings, jobs: int, rates: Mapping[str, float] | None = None
) -> Iterator[None]:
    """Start `jobs` - 1 more processes on the study; when the block ends, ask those still at work to stop.

    `rates` are the learning rates that the study takes from another one.

    They stop as on SIGTERM: their runs are on disk and can be resumed. What they cannot do the caller does, so
    their failures are not looked at.
    """
    if jobs < 1:
        raise LabError(f"jobs={jobs!r}: must be >= 1")
    work = json.dumps(
        {"study": study.data(), "root": str(root), "settings": asdict(settings), "rates": rates}
    )
    started = []
    try:
        for number in range(1, jobs):
            process = subprocess.Popen(
                [sys.executable, "-m", "adaxlab.workers", str(number)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            started.append(process)
            assert process.stdin is not None
            process.stdin.write(work)
            process.stdin.close()
        yield
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        for process in started:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def main() -> int:
    """A worker: the work comes as JSON on standard input."""
    from adaxlab.driver import carry_out

    work = json.load(sys.stdin)
    first = int(sys.argv[1])
    try:
        study = Study.from_data(work["study"]).complete()
        carry_out(study, work["root"], Settings(**work["settings"]), rates=work["rates"], first=first)
    except LabError as error:
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
