"""Run a comparison that is stopped at its n-th write to the disk, for many n, until it is complete; print how often.
Started by test_tuning.py.

    python kill_compare.py FOLDER SAMPLER SIGNAL SEED

A process of its own, because it forks: each session is a child that sends itself the signal. The moments are counts of
writes, not times: anywhere between two writes the files on disk are the same.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path

import torch

from adaxlab import compare, environment, optimizers, search
from adaxlab.errors import Interrupted
from adaxlab.settings import Settings
from adaxlab.study import Study, Tuning

TINY = str(Path(__file__).with_name("tiny.py"))
MOST = 8  # sessions that are stopped; then one may finish


def study(sampler):
    over = ("lr", "weight_decay", "b2") if sampler != "walk" else ("lr",)
    return Study(
        f"{TINY}:Tiny", compare.rows(("sgdm", "adamw", "adaxw")), "killed", seeds=3, epochs=1, batch_size=30,
        tuning=Tuning(4, over=over, sampler="" if sampler == "walk" else sampler),
    )  # fmt: skip


def session(given, root, number, after):
    """One session in a child, which sends itself the signal at its `after`-th write; whether it was stopped."""
    child = os.fork()
    if child == 0:
        left, fsync = [after], os.fsync

        def counted(handle):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), number)
            return fsync(handle)

        os.fsync = counted
        try:
            compare.compare(given, root, Settings(checkpoint_seconds=0))
            os._exit(0)
        except Interrupted:
            os._exit(3)
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr, flush=True)
            os._exit(9)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 3, -signal.SIGKILL):
        sys.exit(f"a session failed with {code}")
    return code != 0


def main(root, sampler, number, seed):
    optimizers.warm_up()  # here, so that the children need not
    environment.describe(torch.device("cpu"), 1)
    if sampler != "walk":
        next(search.sampled({"a": (0.0, 1.0, False)}, {"a": 0.5}, 2, 0, sampler))
    given = study(sampler)
    session(given, root / "whole", number, -1)
    source = random.Random(seed)
    stopped = 0
    while stopped < MOST and session(given, root / "killed", number, source.randint(1, 16)):
        stopped += 1
    session(given, root / "killed", number, -1)
    print(json.dumps({"stopped": stopped}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], signal.Signals[sys.argv[3]], int(sys.argv[4]))
