"""Run records made by hand, for tables and claims."""

from __future__ import annotations

import json
from pathlib import Path

from adaxlab.spec import SCHEMA
from adaxlab.store import RunRecord


def run(study, row, metric, *, seed=0, lr=1e-3, purpose="final", higher=True, metrics=(), **more):
    """A run of a row that ended with `metric`; None: it diverged."""
    spec = {
        "schema": SCHEMA,
        "study": study,
        "row": row,
        "optimizer": row,
        "options": {"lr": lr},
        "seed": seed,
    }
    spec |= {
        "purpose": purpose,
        "task": "made",
        "task_options": {},
        "schedule": {},
        "epochs": 1,
        "batch_size": 1,
        **more,
    }
    status = "diverged" if metric is None else "finished"
    done = {
        "schema": SCHEMA,
        "status": status,
        "metric": metric,
        "metric_name": "m",
        "higher_is_better": higher,
    }
    done |= {"steps": 1, "seconds": 1.0, "train_loss": 1.0}
    lines = list(metrics) or [{"step": 1, "metric": metric, "train_loss": 1.0}] * (metric is not None)
    return RunRecord(spec, {}, lines, done, Path("made"))


KNOWN = {"study": "tiny", "compiled": True, "graph": True, "processes": 1}


def speed_record(ms, **turns):
    return {
        "rows": [{"what": "training", "images_per_second": 23456.7, "ms": 10.9}],
        "batch": 256,
        "stored": 64,
        "model": "resnet18",
        "precision": "bf16",
        "in_turn": {"steps": 20, **turns, "ms": ms},
        "environment": {"hardware": {"device": "a device"}, "versions": {"torch": "2"}},
    }


def put_speed(root, found):
    place = root / "records" / "imagenet" / "speed.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(found))
    return root
