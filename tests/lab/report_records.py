"""Run records of the store's shape with plausible numbers, for the tests of the report."""

from __future__ import annotations

import math
import random
from pathlib import Path

from adaxlab.store import RunRecord

LEVELS = {"sgdm": (0.1, 0.921), "adamw": (1e-3, 0.916), "amsgradw": (1e-3, 0.918), "adaxw": (5e-3, 0.926)}
EPOCHS = 20


def record(
    optimizer="adaxw",
    seed=0,
    purpose="final",
    study="digits",
    lr=None,
    status="finished",
    epochs=EPOCHS,
    higher=True,
    metric_name="accuracy",
    metric=None,
    options=(),
    trial=None,
):
    """A run of the store's shape with a plausible curve; a diverged one ends early without a metric."""
    base_lr, top = LEVELS.get(optimizer, (1e-2, 0.9))
    lr = base_lr if lr is None else lr
    rng = random.Random(f"{optimizer} {seed} {lr} {purpose} {study}")
    off = abs(math.log10(lr / base_lr))
    final = (top - 0.03 * off**2 + rng.gauss(0, 0.002)) if metric is None else metric
    lines = []
    for epoch in range(1, (epochs if status == "finished" else 4) + 1):
        share = 1.0 if epoch == epochs else 1 - math.exp(-6 * epoch / epochs)
        loss = 2.3 * math.exp(-5 * epoch / epochs) + 0.01 if status == "finished" else 2.3 * math.exp(epoch)
        value = final * share
        lines.append(
            {
                "step": 23 * epoch,
                "epoch": epoch,
                "train_loss": loss,
                "train_metric": value,
                "valid_loss": 1.2 * loss,
                "metric": value if higher else 1 - value,
                "lr": lr,
                "seconds": 0.3 * epoch,
            }
        )
    ended = status == "finished"
    done = {
        "status": status,
        "metric": lines[-1]["metric"] if ended else None,
        "best": lines[-1]["metric"],
        "train_loss": lines[-1]["train_loss"] if ended else None,
        "seconds": 6 + rng.random(),
        "step_seconds": 1.5,
        "loop_seconds": 0.3,
        "steps": lines[-1]["step"],
        "metric_name": metric_name,
        "higher_is_better": higher,
    }
    spec = {
        "schema": 2,
        "study": study,
        "task": "digits",
        "task_options": {},
        "row": optimizer,
        "optimizer": optimizer,
        "options": {"lr": lr, "weight_decay": 0.05, **dict(options)},
        "schedule": {"name": "cosine", "warmup": 0, "final": 0.0},
        "epochs": epochs,
        "batch_size": 64,
        "seed": seed,
        "purpose": purpose,
        "trial": trial,
    }
    env = {
        "time": f"2026-11-15T02:0{seed % 10}:00+00:00",
        "versions": {"adaxopt": "0.1.0", "torch": "2.13.0", "cuda": None},
        "hardware": {"device": "cpu", "cores": 2},
        "commit": "0123456789ab",
    }
    done_or_none = None if status == "unfinished" else done
    return RunRecord(spec, env, lines, done_or_none, Path(study) / f"{optimizer}-{purpose}-{seed}-{lr:g}")


def study(name="digits", optimizers=tuple(LEVELS), seeds=5, diverged=(("adamw", 3),), **options):
    """Tuning and final runs of a whole study; AdaX-W's largest trial lr diverges, and the given final runs."""
    out = []
    for optimizer in optimizers:
        lr = LEVELS.get(optimizer, (1e-2, 0))[0]
        for trial, factor in enumerate((0.1, 0.3, 1, 3)):
            bad = optimizer == "adaxw" and factor == 3
            state = "diverged" if bad else "finished"
            out.append(record(optimizer, 100, "tune", name, lr * factor, state, trial=trial, **options))
        for seed in range(seeds):
            state = "diverged" if (optimizer, seed) in diverged else "finished"
            out.append(record(optimizer, seed, study=name, status=state, **options))
    return out


def own_figure(field="optimizer"):
    """A chart as a caller would bring it: no colours of its own."""
    rows = [
        {"optimizer": o, "x": x, "y": x * (i + 1)}
        for i, o in enumerate(("adam", "adaxw"))
        for x in (1.0, 2.0)
    ]
    import altair as alt

    base = alt.Chart(alt.InlineData(values=rows)).mark_line().encode(x="x:Q", y="y:Q", color=f"{field}:N")
    return base


def cifar_run(
    row="adaxw", seed=0, optimizer="adaxw", lr=5e-3, final=92.0, study="table2", trace=None, **options
):
    """A run of a CIFAR-10 study, three epochs long, as records/ has it; `final` in percent, None: it diverged."""
    tune = study == "tuning"
    spec = {
        "schema": 2,
        "study": f"cifar10/{study}",
        "row": row,
        "task": "cifar10",
        "task_options": {"model": "resnet20", "precision": "bf16"},
        "optimizer": optimizer,
        "options": {"lr": lr, **options},
        "schedule": {"name": "step", "warmup": 0, "milestones": [0.4, 0.7], "gamma": 0.1},
        "epochs": 3,
        "batch_size": 128,
        "seed": seed,
        "purpose": "tune" if tune else "final",
        "trial": None,
        "data": "x",
    }
    last = 0.1 if final is None else final / 100
    losses = [1.5, 0.8, 0.3] if final is not None else [1.5, None, None]
    curves = zip(losses, (0.5, 0.8, 0.95), (0.5, 0.8, last), strict=True)
    metrics = [
        {"step": 391 * epoch, "epoch": epoch, "train_loss": loss, "train_metric": trained, "metric": judged}
        for epoch, (loss, trained, judged) in enumerate(curves, 1)
    ]
    done = {
        "schema": 2,
        "status": "diverged" if final is None else "finished",
        "metric": None if final is None else last,
        "train_loss": losses[-1],
        "seconds": 1.0,
        "together": 1,
        "metric_name": "accuracy",
        "higher_is_better": True,
        "steps": 1173,
        **({"trace": trace} if trace else {}),
    }
    return RunRecord(spec, {"precision": "bf16"}, metrics, done, Path("cifar10") / f"{row}-{seed}")
