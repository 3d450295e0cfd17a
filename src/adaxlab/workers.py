"""More processes for one study: each follows the same plan, starts with another row, and skips runs that another
process has locked.

Worker i uses GPU i modulo the number of GPUs, unless the device was named.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import torch

from adaxlab.errors import LabError
from adaxlab.settings import Settings
from adaxlab.study import Study


def device_of(device: str, number: int, count: int) -> str:
    """The device of the worker with this number, on a machine with `count` GPUs; the calling process is worker 0.

    >>> [device_of("auto", number, 4) for number in range(6)]
    ['cuda:0', 'cuda:1', 'cuda:2', 'cuda:3', 'cuda:0', 'cuda:1']
    >>> device_of("auto", 1, 0), device_of("cuda:3", 1, 4), device_of("cpu", 1, 4)
    ('auto', 'cuda:3', 'cpu')
    """
    return f"cuda:{number % count}" if device in ("auto", "cuda") and count else device


@contextmanager
def helpers(
    study: Study, root: Path | str, settings: Settings, jobs: int, rates: Mapping[str, float] | None = None
) -> Iterator[None]:
    """Start `jobs` - 1 more processes on the study; when the block ends, terminate those that still run.

    `rates` are the learning rates that the study takes from another one. A terminated process leaves checkpoints, and
    its runs can be resumed. Failures of these processes are ignored, because the caller makes the runs that they did
    not.
    """
    if jobs < 1:
        raise LabError(f"jobs={jobs!r}: must be >= 1")
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
            own = replace(settings, device=device_of(settings.device, number, torch.cuda.device_count()))
            work = {"study": study.data(), "root": str(root), "settings": asdict(own), "rates": rates}
            assert process.stdin is not None
            process.stdin.write(json.dumps(work))
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
    """The main function of a worker, which reads its work as JSON from standard input."""
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
