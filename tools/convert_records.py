"""Convert record files of earlier formats to today's (`adaxlab.store.export`): `python tools/convert_records.py`.

    records/language/ptb.jsonl, ... (schema 1)   specifications without the data's digest, named language-ptb
    records/cifar10/table2.jsonl, ...            one line a run with its curves in percent, no header
    records/imagenet/*.jsonl                     a line a run, accuracies in percent, `recipe` in the place of a spec

Files that are in today's format are left alone.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from adaxlab import spec, store
from adaxlab.data import cifar10
from adaxlab.paper import imagenet as imagenet_studies
from adaxlab.paper.cifar10 import TUNING

PLAIN = {"language-ptb": "language/ptb", "language-enwik8": "language/enwik8", "gpt": "gpt"}
RATES = {row.name: row.rates for row in TUNING.rows}
PLAIN |= {"voc-camvid": "voc/camvid", "voc-tuning": "voc/tuning"}


def exported(row: dict[str, Any]) -> store.RunRecord:
    """A run of schema 1."""
    old = row["spec"]
    new = {
        **old,
        "schema": spec.SCHEMA,
        "study": PLAIN.get(old["study"], old["study"]),
        "data": row["env"]["data"],
    }
    new["row"] = new["optimizer"] = new["optimizer"].replace("adaxopt.lab.", "adaxlab.")
    return store.RunRecord(json.loads(spec.canonical(new)), row["env"], row["metrics"], row["done"], Path())


def stacked(line: dict[str, Any]) -> store.RunRecord:
    """A run of a CIFAR-10 study. Accuracies become shares of 1."""
    recipe, curve, tune = line["recipe"], line["curve"], line["study"] == "tuning"
    steps = math.ceil(line["images"] / recipe["batch"])
    epochs = recipe["epochs"]
    drops = [m / epochs for m in recipe["milestones"] if m < epochs]
    options = {"model": recipe["model"], "precision": line["precision"]}
    options |= {"holdout": 50_000 - line["images"]} if tune else {}
    options |= {"trace": True} if "trace" in line else {}
    row, _, lr = line["row"].partition(" lr ") if tune else (line["row"], "", "")
    asked = spec.make(
        study=f"cifar10/{line['study']}",
        task="cifar10",
        task_options=options,
        row=row,
        optimizer=line["optimizer"],
        options=line["options"],
        schedule={"name": "step", "milestones": drops, "gamma": recipe["gamma"]} if drops else "constant",
        epochs=epochs,
        batch_size=recipe["batch"],
        seed=line["seed"],
        purpose="tune" if tune else "final",
        trial=RATES[row].index(float(lr)) if tune else None,
        data=cifar10.DIGEST,
    )
    metrics = [
        {
            "step": steps * epoch,
            "epoch": epoch,
            "train_loss": loss,
            "train_metric": round(trained / 100, 8),
            "metric": round(judged / 100, 8),
        }
        for epoch, (loss, trained, judged) in enumerate(
            zip(curve["train_loss"], curve["train_accuracy"], curve["test_accuracy"], strict=True), 1
        )
    ]
    lost = None in curve["train_loss"]
    done = {
        "schema": spec.SCHEMA,
        "status": "diverged" if lost else "finished",
        "metric": None if lost else round(line["test_accuracy"] / 100, 8),
        "train_loss": None if lost else line["train_loss"],
        "seconds": line["seconds"],
        **{key: line[key] for key in ("epoch_seconds", "trace") if key in line},
        "together": line["together"],
        "metric_name": "accuracy",
        "higher_is_better": True,
        "split": "valid" if tune else "test",
        "steps": steps * epochs,
    }
    env = {**line["environment"], "precision": line["precision"], "data": cifar10.DIGEST}
    if "same_run_as" in line:
        env["made_for"] = f"cifar10/{line['same_run_as'].split(':')[0]}"
    return store.RunRecord(asked, env, metrics, done, Path())


# -- ImageNet --------------------------------------------------------------------------------------------------------

IMAGENET_CURVES = ("train_loss", "train_accuracy", "test_accuracy")
IMAGENET_DONE = (
    "images",
    "test_images",
    "classes",
    "images_per_second",
    "layout",
    "graph",
    "compiled",
    "processes",
)


def imagenet(line: dict[str, Any]) -> store.RunRecord:
    """A run of the ImageNet studies; the row `sgdm lr 1` of tuning is a trial of the row sgdm."""
    recipe, tuning = line["recipe"], line["study"] == "tuning"
    row, _, _ = line["row"].partition(" lr ")
    options = {key: recipe[key] for key in ("model", "stem", "size", "stored", "groups", "width")}
    options |= {"precision": line["precision"], **({"holdout": 0.1} if tuning else {})}
    lr = line["options"]["lr"]
    schedule = {"name": recipe["shape"], "warmup": recipe["warmup"]}
    if recipe["shape"] == "step":
        schedule |= {"milestones": recipe["milestones"], "gamma": 0.1}
    else:
        schedule |= {"final": float(f"{recipe['final_lr'] / lr:.6g}")}
    made = spec.make(
        study=f"imagenet/{line['study']}",
        task="imagenet",
        task_options=options,
        row=row,
        optimizer=imagenet_studies.OPTIONS[row][0],
        options=line["options"],
        schedule=schedule,
        epochs=recipe["epochs"],
        batch_size=recipe["batch"],
        seed=line["seed"],
        purpose="tune" if tuning else "final",
        trial=imagenet_studies.RATES[row].index(lr) if tuning else None,
        data=line["digest"],
    )
    steps = line["steps"] // recipe["epochs"]
    metrics = [
        {
            "step": epoch * steps,
            "epoch": epoch,
            "train_loss": loss,
            "train_metric": round(trained / 100, 8),
            "metric": round(tested / 100, 8),
        }
        for epoch, (loss, trained, tested) in enumerate(
            zip(*(line["curve"][key] for key in IMAGENET_CURVES), strict=True), 1
        )
    ]
    failed = None in line["curve"]["train_loss"]
    done = {
        "schema": spec.SCHEMA,
        "status": "diverged" if failed else "finished",
        "metric": None if failed else metrics[-1]["metric"],
        "best": max(point["metric"] for point in metrics),
        "train_loss": line["train_loss"],
        "seconds": line["seconds"],
        "metric_name": "accuracy",
        "higher_is_better": True,
        "split": "valid" if tuning else "test",
        "steps": line["steps"],
        **{key: line[key] for key in IMAGENET_DONE},
    }
    env = {**line["environment"], "data": line["digest"], "precision": line["precision"]}
    if "copied_from" in line:
        env["made_for"] = f"imagenet/{line['copied_from']}"
    return store.RunRecord(made, env, metrics, done, Path())


# --------------------------------------------------------------------------------------------------------------------


def main() -> None:
    """Convert every file of records/."""
    for path in sorted(Path("records").rglob("*.jsonl")):
        header, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        if path.parent.name == "cifar10" and "curve" in header:
            store.export([stacked(line) for line in (header, *rows)], path)
            print(f"{path}: {1 + len(rows)} runs")
        if "stem" in header.get("recipe", {}):
            store.export(map(imagenet, [header, *rows]), path)
            print(f"{path}: {len(rows) + 1} runs")
        if header.get("kind") == store.EXPORT and header["schema"] == 1:
            for row in rows:
                row["done"]["schema"] = spec.SCHEMA
            store.export([exported(row) for row in rows], path)
            print(f"{path}: {len(rows)} runs")


if __name__ == "__main__":
    main()
