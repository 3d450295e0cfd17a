"""Kill runs at random moments until each is done; print how often. Started by test_kill.py.

A process of its own, because it forks: a child carries the run on, the parent sends it SIGKILL after a random time.
Each case is first run undisturbed (in `whole`), which also tells how long it takes; the kills (in `killed`) fall
anywhere in the first third of that, so that a run is killed several times and gets on in between.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from adaxlab import environment, optimizers, spec
from adaxlab.execute import process
from adaxlab.settings import Settings

TINY = str(Path(__file__).with_name("tiny.py"))
CASES = [("Tiny", "adaxw"), ("TinyLoader", "adaxw"), ("TinyDataset", "amsgradw"), ("Tiny", "torch:AdamW")]
MOST = 12  # kills of one run; then it may finish


def specs():
    for name, optimizer in CASES:
        yield spec.make(
            study="kill", task=f"{TINY}:{name}", optimizer=optimizer, options={"lr": 0.02}, epochs=12,
            batch_size=16, seed=3, schedule={"name": "cosine", "warmup": 5},
        )  # fmt: skip


def carry_on(given, root, seconds=None):
    """One session in a child, killed after `seconds`; True when it was killed, False when it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            process.run(given, root, Settings(checkpoint_seconds=0))
            os._exit(0)
        except BaseException as error:
            print(f"child: {error!r}", file=sys.stderr, flush=True)
            os._exit(9)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        sys.exit(f"a session failed with {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


def main(root, seed):
    optimizers.warm_up()  # here, so that the children need not
    environment.describe(torch.device("cpu"), 1)
    source = random.Random(seed)
    total = 0
    for given in specs():
        began = time.monotonic()
        carry_on(given, root / "whole")
        length = time.monotonic() - began
        kills = 0
        while kills < MOST and carry_on(given, root / "killed", source.uniform(0, length / 3)):
            kills += 1
        carry_on(given, root / "killed")
        total += kills
    print(json.dumps({"kills": total}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
