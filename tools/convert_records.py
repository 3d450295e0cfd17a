"""Convert record files of earlier formats to today's (`adaxlab.store.export`): `python tools/convert_records.py`.

    records/language/ptb.jsonl, ... (schema 1)   specifications without the data's digest, named language-ptb
    records/imagenet/*.jsonl                     a line a run, accuracies in percent, `recipe` in the place of a spec

Files that are in today's format are left alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from adaxlab import spec, store
from adaxlab.paper import imagenet as imagenet_studies

PLAIN = {"language-ptb": "language/ptb", "language-enwik8": "language/enwik8", "gpt": "gpt"}
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
IMAGENET_FLOOR = 2.0
"""A final accuracy in percent that is no more than this is a run that failed."""


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
    failed = None in line["curve"]["train_loss"] or line["test_accuracy"] <= IMAGENET_FLOOR
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
