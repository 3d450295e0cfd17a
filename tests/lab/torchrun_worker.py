"""What each of the processes of test_torchrun.py does: a study in one go, and the same stopped and resumed.

torchrun ... torchrun_worker.py IMAGES OUT kill    the second process dies in the middle of a study
torchrun ... torchrun_worker.py IMAGES OUT         that study resumes; the others
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from adaxlab import driver, signals
from adaxlab.distributed import Ranks, joined
from adaxlab.errors import Interrupted, LabError
from adaxlab.execute import torchrun
from adaxlab.imagenet.train import Training
from adaxlab.paper.imagenet import TINY
from adaxlab.settings import Settings
from adaxlab.store import RunFolder
from adaxlab.study import Study

ENDS: list[list[torch.Tensor]] = []
"""The last parameters and running statistics of every run that was carried out here."""
KEPT = Training.done


def small(images: str, groups: int = 1) -> Study:
    """AdaX-W alone, two epochs. Batches of 7, 7 and 4: two processes have 4 and 3, 4 and 3, 2 and 2 images."""
    options = {"data": images, "size": 16, "stored": 16, "width": 4, "precision": "fp64", "groups": groups}
    given = {**TINY.task_options, **options}
    rows = (TINY.row("adaxw"),)
    return replace(TINY, rows=rows, baseline="", seeds=1, epochs=2, batch_size=7, task_options=given)


def done(self: Training) -> dict[str, Any]:
    found = itertools.chain(self.network.parameters(), self._buffers())
    ENDS.append([t.detach().clone() for t in found])
    return KEPT(self)


class Impatient(driver.Silent):
    """Asks to stop at every second step, in the first process alone."""

    def __init__(self, stop: signals.Stop, ranks: Ranks) -> None:
        self.stop, self.ranks = stop, ranks

    def running(self, spec: Any, step: int, total: int, metric: float | None) -> None:
        if self.ranks.first and step % 2 == 0:
            self.stop.over, self.stop.signum = True, 15


def in_pieces(study: Study, out: Path, ranks: Ranks) -> None:
    calls = 0
    while True:
        stop = signals.Stop()
        try:
            driver.carry_out(study, out, Settings(), Impatient(stop, ranks), stop)
            break
        except Interrupted:
            assert (stop.signum, stop.over) == (15, True)  # in every process
            calls += 1
    assert calls > 1


def killed(images: str, out: Path) -> None:
    """SIGKILL to the second process, a step into the second epoch."""
    kept = Training._launch
    taken = itertools.count(1)
    with joined("cpu") as ranks:

        def launch(self: Training, batch: Any) -> None:
            if not ranks.first and next(taken) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            kept(self, batch)

        Training._launch = launch  # type: ignore[method-assign]
        driver.carry_out(small(images), out / "killed", Settings(checkpoint_seconds=0.0))


def main(images: str, out: Path) -> None:
    Training.done = done  # type: ignore[method-assign]
    study = small(images)
    with joined("cpu") as ranks:
        assert ranks.world == 2
        group = weakref.ref(torch.distributed.group.WORLD)
        (record,) = driver.carry_out(study, out / "whole") or ()
        driver.carry_out(study, out / "killed")
        in_pieces(study, out / "pieces", ranks)
        if ranks.first:
            torch.save(dict(zip(("whole", "killed", "pieces"), ENDS, strict=True)), out / "ends.pt")

        ends = len(ENDS)
        (again,) = driver.carry_out(replace(study, name="imagenet/other"), out / "whole") or ()
        assert again.metrics == record.metrics  # borrowed, not made again
        assert len(ENDS) == ends

        busy, silent = RunFolder(out / "busy", record.spec), driver.Silent()
        context = busy.lock() if ranks.first else joined("cpu")
        with context:
            ranks.agree(True)
            assert torchrun.run(record.spec, out / "busy", Settings(), ranks, silent, signals.Stop()) is None

        def fail() -> None:
            raise LabError("no such folder")

        said = "no such folder" if ranks.first else "the first process failed; its message says why"
        with pytest.raises(LabError, match=said):
            ranks.first_does(fail)
    assert group() is None  # else its threads may abort the process at its end


if __name__ == "__main__":
    (killed if sys.argv[3:] == ["kill"] else main)(sys.argv[1], Path(sys.argv[2]))
