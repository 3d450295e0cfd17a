"""Two processes by torchrun (gloo): the parameters of one process with the whole batch, and exact resumption, also
after SIGKILL to one of them.

Under DistributedDataParallel each process's norms have the statistics of its own share of the batch. The one process
that it is compared with therefore has `groups=2`: norms with the statistics of each half, everything else of the whole
batch. In float64 both agree to rounding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import imagenet_ranks
import torch
from picture_sets import make, tiny

from adaxlab.imagenet import book, cache, drive
from adaxlab.imagenet.train import Training

HERE = Path(__file__).parent


def alone(pictures, out, groups, monkeypatch):
    monkeypatch.setitem(book.STUDIES, "tiny", book.STUDIES["tiny"])  # what `prepare` changes is put back
    monkeypatch.setattr(Training, "_end_epoch", Training._end_epoch)
    imagenet_ranks.prepare(groups)
    imagenet_ranks.ENDS.clear()
    assert imagenet_ranks.run(pictures, out)
    monkeypatch.undo()
    return imagenet_ranks.ENDS[0]


def together(place, out, *more):
    """The exit code of two processes by torchrun, and what they said."""
    environment = {**os.environ, "PYTHONPATH": f"{HERE.parents[1] / 'src'}", "OMP_NUM_THREADS": "1"}
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    with subprocess.Popen(
        [sys.executable, *words, str(HERE / "imagenet_ranks.py"), str(place), str(out), *more],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as both:
        try:
            _, said = both.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            both.terminate()  # torchrun ends its processes then; killed, it would leave them behind
            raise
    return both.returncode, said


def test_two_processes_are_one_with_twice_the_batch(tmp_path, monkeypatch):
    place = tmp_path / "set"
    tiny(place, make())
    cache.obtain(place, 16, workers=1)
    code, said = together(place, tmp_path, "kill")
    assert code, said
    assert "SIGKILL" in said
    (left,) = (tmp_path / "killed").glob("*.pt")
    assert torch.load(left, weights_only=True)["at"][0] == 1  # in the second of two epochs
    code, said = together(place, tmp_path)
    assert code == 0, said[-3000:]
    found = torch.load(tmp_path / "ends.pt", weights_only=True)
    for again in ("cut", "killed"):
        assert all(torch.equal(a, b) for a, b in zip(found["whole"], found[again], strict=True)), again

    one = alone(str(place), tmp_path / "one", 2, monkeypatch)
    difference = max((a - b).abs().max().item() for a, b in zip(found["whole"], one, strict=True))
    assert difference < 1e-10
    plain = alone(str(place), tmp_path / "plain", 1, monkeypatch)
    assert max((a - b).abs().max().item() for a, b in zip(found["whole"], plain, strict=True)) > 1e-4

    two, single = (drive.records(tmp_path / out / "tiny.jsonl")[0] for out in ("whole", "one"))
    assert (two["processes"], single["processes"]) == (2, 1)
    assert two["curve"] == single["curve"]
    assert {path.name for path in (tmp_path / "cut").iterdir()} == {"tiny.jsonl", ".tiny.lock"}
    (line,) = drive.records(tmp_path / "copied" / "tiny.jsonl")
    assert line == {**two, "copied_from": "other"}
