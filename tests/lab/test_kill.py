"""SIGKILL at random moments: the run ends with the same bits as one that nobody disturbed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from adaxlab import store

DRIVER = Path(__file__).with_name("kill_driver.py")
TIMES = {"seconds", "step_seconds", "loop_seconds", "sessions"}


def content(records):
    return {
        r.name: (
            [{k: v for k, v in line.items() if k not in TIMES} for line in r.metrics],
            {k: v for k, v in r.done.items() if k not in TIMES},
        )
        for r in records
    }


def test_twenty_kills_and_the_same_bits(tmp_path):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    driver = subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path), "7"],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )
    assert driver.returncode == 0, driver.stderr
    assert json.loads(driver.stdout)["kills"] >= 20
    whole, killed = store.load_runs(tmp_path / "whole"), store.load_runs(tmp_path / "killed")
    assert len(whole) == 4
    assert content(killed) == content(whole)
    assert {r.done["sessions"] for r in whole} == {1}
    assert sum(r.done["sessions"] for r in killed) > 8  # sessions that began from the checkpoint of another
    left = {p.name for r in killed for p in r.path.iterdir()}
    assert left == {".lock", "spec.json", "env.json", "metrics.jsonl", "done.json"}
