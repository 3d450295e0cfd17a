"""What each of the processes of test_imagenet_ranks.py does: a study in one go, and the same cut and resumed.

torchrun ... imagenet_ranks.py PICTURES OUT kill    the second process dies in the middle of a study
torchrun ... imagenet_ranks.py PICTURES OUT         that study goes on; the others
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
import types
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from adaxlab.imagenet import book, drive, studies
from adaxlab.imagenet.ranks import Ranks, joined
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.train import Training

RECIPE = Recipe(epochs=2, batch=7, size=16, stored=16, width=4)
"""Batches of 7, 7 and 4: the two processes have 4 and 3, 4 and 3, 2 and 2 pictures."""
ENDS: list[list[torch.Tensor]] = []


def prepare(groups: int = 1) -> None:
    """A study of AdaX-W alone whose runs leave their last parameters and running statistics in ENDS."""
    study = replace(book.TINY, rows=book.TINY.rows[3:4], recipe=replace(RECIPE, groups=groups))
    book.STUDIES["tiny"] = study
    kept = Training._end_epoch

    def end(self: Training) -> None:
        kept(self)
        if self.epoch == RECIPE.epochs:
            found = itertools.chain(self.network.parameters(), self._buffers())
            ENDS.append([t.detach().clone() for t in found])

    Training._end_epoch = end  # type: ignore[method-assign]


def run(pictures: str, out: Path, **options: object) -> object:
    given = dict(data=pictures, device="cpu", seeds=1, precision="fp64", **options)
    return studies.run("tiny", out, **given)  # type: ignore[arg-type]


def copied(pictures: str, out: Path, ranks: Ranks) -> None:
    """A study whose run another one has made, with a second process that looks late: both do the same."""
    folder = out / "copied"
    if ranks.first:
        folder.mkdir()
        text = (out / "whole" / "tiny.jsonl").read_text()
        (folder / "other.jsonl").write_text(text.replace('"study": "tiny"', '"study": "other"'))
    else:
        kept = drive.records

        def late(path: Path) -> list[dict[str, Any]]:
            time.sleep(0.2)
            return kept(path)

        drive.records = late  # type: ignore[attr-defined]
    ranks.agree(True)
    ends = len(ENDS)
    assert run(pictures, folder)
    assert len(ENDS) == ends


def killed(pictures: str, out: Path) -> None:
    """SIGKILL to the second process, a step into the second epoch."""
    prepare()
    kept = Training._launch
    taken = itertools.count(1)
    with joined("cpu") as ranks:

        def launch(self: Training, batch: Any) -> None:
            if not ranks.first and next(taken) == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            kept(self, batch)

        Training._launch = launch  # type: ignore[method-assign]
        run(pictures, out / "killed", checkpoint_seconds=0.0)


def main(pictures: str, out: Path) -> None:
    torch.set_num_threads(1)
    prepare()
    with joined("cpu") as ranks:
        assert ranks.world == 2
        group = weakref.ref(torch.distributed.group.WORLD)
        assert run(pictures, out / "whole")
        assert run(pictures, out / "killed")
        ticks = itertools.count()
        drive.time = types.SimpleNamespace(monotonic=lambda: next(ticks))  # type: ignore[assignment]
        calls = 1
        while not run(pictures, out / "cut", seconds=15.0):
            calls += 1
        assert calls > 1
        if ranks.first:
            torch.save(dict(zip(("whole", "killed", "cut"), ENDS, strict=True)), out / "ends.pt")
        copied(pictures, out, ranks)
        everywhere = ranks.gather(torch.cat([t.flatten() for t in ENDS[0]]))
        assert torch.equal(everywhere[0], everywhere[1])
    assert group() is None  # else its threads may abort the process at its end


if __name__ == "__main__":
    (killed if sys.argv[3:] == ["kill"] else main)(sys.argv[1], Path(sys.argv[2]))
