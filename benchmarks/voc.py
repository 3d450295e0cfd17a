"""Milliseconds of a training step of the segmentation study, a row at a time on a GPU that nothing else uses.

    PYTHONPATH=src python benchmarks/voc.py [--rounds 9] [--steps 20] [--out records/voc/speed.json]

DeepLab over a ResNet-50, batch 10, crops of 321 pixels, bf16, the study's parameter groups and rows. Images are
random numbers: time does not depend on them. Rows take `--steps` steps in turn; every round is kept.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from gpu_measure import environment

from adaxlab import optimizers
from adaxlab.data.segmentation.folders import LAYOUTS
from adaxlab.models.deeplab import deeplab
from adaxlab.paper.voc import STUDIES
from adaxlab.study import Row
from adaxlab.tasks.voc import Voc, cross_entropy

STUDY = STUDIES[0]
TASK = Voc(**STUDY.task_options)
BATCH, CROP, CLASSES = TASK.batch_size, TASK.crop, LAYOUTS["camvid"].classes


class Run:
    """One row: its network and its rounds."""

    def __init__(self, row: Row) -> None:
        torch.manual_seed(0)
        self.name, self.ms = row.name, list[float]()
        options = row.at(row.options["lr"], STUDY.epochs * TASK.steps)
        self.net: Any = deeplab(TASK.backbone, CLASSES, "torch").cuda()
        self.optimizer = optimizers.build(row.name, TASK.groups(self.net, options), options)

    def round(self, images: torch.Tensor, classes: torch.Tensor, steps: int) -> float:
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            cross_entropy(self.net(images, True), classes).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - begin) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("records/voc/speed.json"))
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds: fewer than 3 decide nothing")
    if not torch.cuda.is_available():
        parser.error("needs a CUDA device")
    images = torch.rand(BATCH, 3, CROP, CROP, device="cuda") * 255
    classes = torch.randint(0, CLASSES, (BATCH, CROP, CROP), device="cuda")
    runs = [Run(row) for row in STUDY.rows]
    for run in runs:
        run.round(images, classes, 10)
    for _ in range(options.rounds):
        for run in runs:
            run.ms.append(run.round(images, classes, options.steps))
    record = {
        "steps": options.steps,
        "environment": environment(),
        "ms": {run.name: [round(ms, 4) for ms in run.ms] for run in runs},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    for name, ms in record["ms"].items():
        print(name, sorted(ms)[len(ms) // 2], flush=True)


if __name__ == "__main__":
    main()
