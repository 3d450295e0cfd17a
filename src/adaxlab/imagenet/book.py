"""What is run: every study as data. Settings are the paper's; `note` says what differs.

The paper's own data set is ImageNet (`resnet18`, `resnet50`: written for it, for those who have it). The others are
stand-ins on Tiny-ImageNet: 200 of its classes, 64x64 pixels, 100,000 pictures to train on. `paper` beside a row is what
the paper has on ImageNet, not on the stand-in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adaxlab import stats
from adaxlab.cifar.stack import Run
from adaxlab.errors import LabError
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.rules import failed
from adaxlab.paper.cifar10 import adamw, adaxw, sgdm
from adaxlab.study import TUNE_SEED, Row

TRAIN_IMAGES = 100_000
"""Of Tiny-ImageNet."""
PAPER_B2_STEPS = 50.0
"""b2*T in the paper: 1e-4 * 500,000 steps."""


@dataclass(frozen=True)
class Study:
    """Rows x seeds under one recipe."""

    name: str
    rows: tuple[Row, ...]
    recipe: Recipe = field(default_factory=Recipe)
    seeds: int = 3
    first_seed: int = 0
    holdout: float = 0.0
    """Share of the training pictures that is kept from it and stands for the test set: for tuning."""
    follows: str = ""
    """The study that chooses the learning rates of this one's rows."""
    note: str = ""

    def runs(self) -> list[Run]:
        """All runs, one seed of every row before the next seed, so that a study cut short is balanced."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return [Run(row.name, row.optimizer, row.options, seed) for seed in seeds for row in self.rows]


def paper_rows(values: Sequence[tuple[float, float]]) -> tuple[Row, ...]:
    """The paper's four: lr and weight decay as on CIFAR-10, but SGDM's 1e-4."""
    a, b, c, d = values
    return (
        sgdm("sgdm", 1e-4, paper=a),
        adamw("adamw", b),
        adamw("amsgradw", c, amsgrad=True),
        adaxw("adaxw", d),
    )


R18 = ((69.90, 0.04), (66.92, 0.05), (66.64, 0.03), (69.87, 0.05))
R50 = ((77.12, 0.07), (68.27, 0.08), (68.76, 0.12), (75.58, 0.08))
"""Top-1 on ImageNet's validation set with margins of error over 5 runs, in the order of `paper_rows`."""
SHORT = Recipe()
LONG_MEMORY = float(f"{PAPER_B2_STEPS / SHORT.steps(TRAIN_IMAGES):.6g}")

TINY = Study(
    "tiny",
    (*paper_rows(R18), adaxw("adaxw-b2T50", R18[3], betas=(0.9, LONG_MEMORY))),
    note="The paper's settings. In 7,820 steps b2 = 1e-4 is b2*T = 0.78, in the paper's 500,000 it is 50: AdaX-W ran "
    "at both.",
)

RATES = {
    "sgdm": (3.0, 1.0, 0.3, 0.1, 0.03, 0.01),
    "adamw": (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
    "amsgradw": (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
    "adaxw": (1.5e-1, 5e-2, 1.5e-2, 5e-3, 1.5e-3, 5e-4),
    "adaxw-b2T50": (1.5e-1, 5e-2, 1.5e-2, 5e-3, 1.5e-3, 5e-4),
}
"""From a decade below the paper's own, which is the fourth, to a decade and a half above it; the first was added for
all when three were best at the upper edge of five."""
LOOK = Recipe(epochs=7)
HOLDOUT = 0.1


def at(method: str, lr: float, name: str, steps: int | None = None) -> Row:
    """A row of one of the methods at another lr; in a run of `steps`, AdaX-W's b2*T is that of the full length."""
    if method == "sgdm":
        return sgdm(name, 1e-4, lr=lr)
    if not method.startswith("adaxw"):
        return adamw(name, lr=lr, **_amsgrad(method))
    b2 = LONG_MEMORY if method == "adaxw-b2T50" else 1e-4
    if steps is not None:
        b2 = float(f"{b2 * SHORT.steps(TRAIN_IMAGES) / steps:.6g}")
    return adaxw(name, lr=lr, **({} if b2 == 1e-4 else {"betas": (0.9, b2)}))


def _amsgrad(method: str) -> dict[str, Any]:
    return {"amsgrad": True} if method == "amsgradw" else {}


TUNING = Study(
    "tuning",
    tuple(
        at(method, lr, f"{method} lr {lr:g}", LOOK.steps(TRAIN_IMAGES - round(HOLDOUT * TRAIN_IMAGES)))
        for method, rates in RATES.items()
        for lr in rates
    ),
    recipe=LOOK,
    seeds=1,
    first_seed=TUNE_SEED,
    holdout=HOLDOUT,
    note=f"{len(RATES['sgdm'])} learning rates each (the largest was added for all when three methods were best at the "
    "upper edge of five), a third of the length, judged on a tenth of the training set, kept from training. "
    "AdaX-W's b2*T is that of the full length: 0.78 and 50.",
)

TUNED = Study(
    "tuned",
    tuple(at(method, rates[len(rates) // 2], method) for method, rates in RATES.items()),
    follows="tuning",
    note="Each method at the best of its learning rates (study tuning); seeds that tuning has not judged.",
)

TINY_R50 = Study(
    "tiny-resnet50",
    paper_rows(R50),
    recipe=Recipe(model="resnet50", shape="cosine"),
    note="The paper's settings for ResNet-50: cosine to 1e-6. b2*T = 0.78 (paper: 50).",
)

REAL = Recipe(stem="imagenet", size=224, stored=256, epochs=100)
RESNET18 = Study("resnet18", paper_rows(R18), recipe=REAL, seeds=5, note="ImageNet itself, 500,500 steps.")
RESNET50 = Study(
    "resnet50",
    paper_rows(R50),
    recipe=Recipe("resnet50", "imagenet", 224, 256, epochs=100, shape="cosine"),
    seeds=5,
    note="ImageNet itself. The paper does not say the number of steps; 500,500, as for ResNet-18.",
)

STUDIES: dict[str, Study] = {
    study.name: study for study in (TINY, TUNING, TUNED, TINY_R50, RESNET18, RESNET50)
}
STAND_INS = ("tiny", "tuning", "tuned", "tiny-resnet50")


def scores(
    lines: Sequence[Mapping[str, Any]],
    method: str,
    lost: Callable[[Mapping[str, Any]], bool] = failed,
) -> dict[float, float]:
    """What tuning found at each lr of a method: the mean over the runs that are not `lost`; -inf where all are."""
    found: dict[float, list[float]] = {}
    for line in lines:
        if line["row"].startswith(f"{method} lr "):
            good = [] if lost(line) else [line["test_accuracy"]]
            found.setdefault(line["options"]["lr"], []).extend(good)
    return {lr: stats.mean(values) if values else -math.inf for lr, values in found.items()}


def best_rates(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Each method's lr with the highest accuracy on the held-out pictures; of equals the paper's, or the smaller."""
    found: dict[str, float] = {}
    for method, rates in RATES.items():
        reached = scores(lines, method)
        missing = [lr for lr in rates if lr not in reached]
        if missing:
            raise LabError(
                f"study tuned: {method} was not tuned at lr {', '.join(f'{lr:g}' for lr in missing)}; "
                "run imagenet/tuning first, with the same --out"
            )
        paper = rates[len(rates) // 2]
        found[method] = max(rates, key=lambda lr: (reached[lr], lr == paper, -lr))
    return found


def tuned_rows(rates: Mapping[str, float]) -> tuple[Row, ...]:
    """The rows of `tuned`, once tuning is done."""
    return tuple(at(method, lr, method) for method, lr in rates.items())
