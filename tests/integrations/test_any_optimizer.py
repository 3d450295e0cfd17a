"""Optimizers of other packages in `adax compare`: Muon, Lion, schedule-free, heavyball, a factory and a split, on a
small transformer; each resumes to the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TASK = Path(__file__).parents[1] / "lab" / "any_task.py"
HEAVY = Path(__file__).with_name("heavy.py")
SPLIT = f"{TASK}:Matrices+torch:AdamW"
OPTIMIZERS = {
    "torch:Muon": (),
    "muon+adaxw": (),
    "pytorch_optimizer:Lion": ("pytorch_optimizer",),
    "schedulefree:AdamWScheduleFree": ("schedulefree",),
    f"{HEAVY}:AdamW": ("heavyball",),
    f"{HEAVY}:SFAdamW": ("heavyball",),
    f"{TASK}:two_groups": (),
    SPLIT: (),
}
EACH = [
    pytest.param(name, id=name.rpartition("/")[2], marks=[pytest.mark.needs("torch", *packages)])
    for name, packages in OPTIMIZERS.items()
]


@pytest.mark.needs("pytorch_optimizer", "schedulefree", "heavyball")
@pytest.mark.feature(
    "adax compare", "Muon, Lion, schedule-free, heavyball, a factory and a split in one comparison"
)
def test_all_of_them_in_one_comparison(tmp_path):
    from adaxlab import store

    names = ["adamw", *OPTIMIZERS]
    words = [
        "compare",
        f"{TASK}:Letters",
        "--optimizers",
        *names,
        "--tune",
        "2",
        "--seeds",
        "3",
        "--epochs",
        "1",
    ]
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "adaxlab.cli", *words, "--device", "cpu", "--out", str(tmp_path), "--quiet"],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    records = store.load_runs(tmp_path)
    assert {r.row for r in records} == set(names)
    for name in names:
        mine = [r for r in records if r.row == name]
        assert {r.status for r in mine} == {"finished"}
        assert len([r for r in mine if r.spec["purpose"] == "tune"]) == 2
        assert sorted(r.spec["seed"] for r in mine if r.spec["purpose"] == "final") == [0, 1, 2]
        assert name in ran.stdout.replace("\n", "") or name.rpartition("/")[2][:8] in ran.stdout


@pytest.mark.parametrize("name", EACH)
@pytest.mark.feature("adax compare", "optimizers of other packages resume to the same bits")
def test_stopped_in_the_middle_it_ends_with_the_same_bits(name, tmp_path):
    from adaxlab import spec
    from adaxlab.errors import Interrupted
    from adaxlab.execute import process
    from adaxlab.settings import Settings
    from adaxlab.signals import Stop

    given = spec.make(
        study="s",
        task=f"{TASK}:Letters",
        optimizer=name,
        options={"lr": 3e-3},
        epochs=2,
        batch_size=16,
        seed=1,
    )
    whole = process.run(given, tmp_path / "whole")
    stop, seen = Stop(), []

    def progress(step, total, metric):
        seen.append(step)
        if len(seen) in (4, 9):
            stop.signum = 2

    sessions = 0
    while sessions < 5:
        stop.signum = 0
        try:
            resumed = process.run(given, tmp_path / "cut", Settings(checkpoint_seconds=0), progress, stop)
            break
        except Interrupted:
            sessions += 1
    assert sessions == 2
    assert resumed.done["model_sha256"] == whole.done["model_sha256"]
    assert [line["metric"] for line in resumed.metrics] == [line["metric"] for line in whole.metrics]
    assert whole.metrics[-1]["train_loss"] < whole.metrics[0]["train_loss"]


@pytest.mark.needs("schedulefree")
def test_schedule_free_is_measured_at_its_averaged_weights(tmp_path, monkeypatch):
    import schedulefree

    from adaxlab import spec
    from adaxlab.execute import process

    given = spec.make(
        study="s", task=f"{TASK}:Letters", optimizer="schedulefree:AdamWScheduleFree", options={"lr": 0.01}, epochs=2,
        batch_size=16, seed=1,
    )  # fmt: skip
    found = process.run(given, tmp_path / "a")
    monkeypatch.setattr(schedulefree.AdamWScheduleFree, "eval", lambda self: None)
    other = process.run(given, tmp_path / "b")
    assert found.metrics[-1]["train_loss"] == pytest.approx(other.metrics[-1]["train_loss"], rel=1e-5)
    assert abs(found.done["metric"] - other.done["metric"]) > 1e-3
