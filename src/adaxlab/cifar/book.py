"""What is run on CIFAR-10: every study as data. Settings are the recipe's; `note` says what the paper leaves open.

A row is one optimizer setting, a study is rows x seeds. `paper` is the paper's accuracy and margin where it gives one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adaxlab.cifar.stack import Recipe, Run
from adaxopt.zoo import METHODS


@dataclass(frozen=True)
class Row:
    """One line of a table: a name, an optimizer and its options."""

    name: str
    optimizer: str
    options: Mapping[str, Any]
    paper: tuple[float, float] | None = None


@dataclass(frozen=True)
class Study:
    """Rows x seeds under one recipe."""

    name: str
    rows: tuple[Row, ...]
    seeds: int = 5
    recipe: Recipe = field(default_factory=Recipe)
    holdout: int = 0
    """Images of the training set that are kept from it and stand for the test set: for tuning."""
    trace: bool = False
    """Record the mean of sqrt(v-hat) along the way."""
    alone: bool = False
    """One run at a time, the rows in turn, for a comparison of times."""
    asks: str = ""
    """The question, in one sentence."""
    note: str = ""

    def runs(self) -> list[Run]:
        """All runs, a row's seeds together, so that they share an optimizer."""
        return [
            Run(row.name, row.optimizer, row.options, seed) for row in self.rows for seed in range(self.seeds)
        ]


def sgdm(
    name: str, weight_decay: float = 5e-4, lr: float = 0.1, paper: tuple[float, float] | None = None
) -> Row:
    """Momentum 0.9 and L2, torch's."""
    return Row(name, "torch:SGD", dict(lr=lr, momentum=0.9, weight_decay=weight_decay), paper)


def adamw(name: str = "adamw", paper: tuple[float, float] | None = None, **options: Any) -> Row:
    """torch's AdamW at the paper's lr 1e-3 and weight decay 0.1."""
    return Row(name, "torch:AdamW", {**dict(lr=1e-3, weight_decay=0.1), **options}, paper)


def adaxw(name: str = "adaxw", paper: tuple[float, float] | None = None, **options: Any) -> Row:
    """The library's AdaX-W at the paper's lr 5e-3 and weight decay 5e-2, as published: no guard for late wakers."""
    return Row(name, "adaxw", {**dict(lr=5e-3, weight_decay=5e-2, wake=False), **options}, paper)


def ours(name: str, method: str, **options: Any) -> Row:
    """Any method of the zoo in the library's engine, at its documented lr unless another is given."""
    return Row(name, method, {"lr": METHODS[method].defaults["lr"], **options})


TABLE2 = Study(
    "table2",
    (
        sgdm("sgdm-5e-4", 5e-4, paper=(92.30, 0.09)),
        sgdm("sgdm-1e-4", 1e-4, paper=(92.30, 0.09)),
        adamw("adamw", (91.86, 0.04)),
        adamw("amsgradw", (92.04, 0.05), amsgrad=True),
        adaxw("adaxw", (92.32, 0.04)),
    ),
    asks="Does the paper's main table hold: its methods at its own learning rates?",
    note="SGDM at the released code's weight decay (5e-4) and at the text's (1e-4), both beside the paper's one row.",
)

TUNING = Study(
    "tuning",
    (
        *(sgdm(f"sgdm lr {lr:g}", lr=lr) for lr in (1.0, 0.3, 0.1, 0.03, 0.01)),
        *(adamw(f"adamw lr {lr:g}", lr=lr) for lr in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)),
        *(adamw(f"amsgradw lr {lr:g}", lr=lr, amsgrad=True) for lr in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4)),
        *(adaxw(f"adaxw lr {lr:g}", lr=lr) for lr in (5e-2, 1.5e-2, 5e-3, 1.5e-3, 5e-4)),
    ),
    asks="Which learning rate suits each method, with as many tries for each, and without a look at the test set?",
    seeds=1,
    holdout=4944,
    note="Five learning rates each, a decade to either side of the paper's own, the best in bold. Without the images "
    "that judge, 45,056 are left, 352 whole batches. The paper tried 5 for the others and 9 for AdaX-W, on the test "
    "set.",
)

BEST = {"sgdm": 0.1, "adamw": 3e-3, "amsgradw": 3e-3, "adaxw": 5e-3}
"""The lr of each method that was best on the held-out images of `tuning`; a test compares it with the record."""

TUNED = Study(
    "tuned",
    (
        sgdm("sgdm", lr=BEST["sgdm"]),
        adamw(lr=BEST["adamw"]),
        adamw("amsgradw", lr=BEST["amsgradw"], amsgrad=True),
        adaxw(lr=BEST["adaxw"]),
    ),
    asks="Does the order of the methods stay when each has the learning rate that suits it?",
    note="Each method at the best of its five learning rates (study tuning), weight decay the paper's: the whole "
    "training set, judged on the test set. SGDM's and AdaX-W's best are the paper's own, so these are table2's runs.",
)

TRACE = Study(
    "trace",
    (adamw(), adaxw()),
    asks="How large is the second moment along training, in AdamW and in AdaX-W?",
    seeds=3,
    trace=True,
    note="Shown below: the mean of sqrt(v-hat) over the parameters, as the caption of the paper's Figure 3b has it; "
    "its text has the average of the second moments. AdaX-W's kernel changed between table2 and this "
    "study: the same rule by its tests, rounded otherwise.",
)

TRACE_LR = Study(
    "trace-lr",
    (
        *(adamw(f"adamw lr {lr}", lr=float(lr)) for lr in ("1e-3", "5e-3")),
        *(adaxw(f"adaxw lr {lr}", lr=float(lr)) for lr in ("1e-3", "5e-3")),
    ),
    asks="Is the second moment smaller in AdaX-W because of its memory, or because of its learning rate?",
    seeds=3,
    recipe=Recipe(epochs=20),
    trace=True,
    note="Both methods at AdamW's lr and at AdaX-W's, 7,820 iterations: no drop of lr. Ours; asked for when `trace` "
    "had been seen.",
)

EPSILON = Study(
    "epsilon",
    (
        *(adamw(f"adamw eps {eps}", eps=float(eps)) for eps in ("1e-8", "1e-5", "1e-3")),
        *(adaxw(f"adaxw eps {eps}", eps=float(eps)) for eps in ("1e-12", "1e-8", "1e-5", "1e-3")),
    ),
    asks="Does eps matter to AdamW, and to AdaX-W?",
    seeds=3,
    note="The paper's three values, and AdaX-W's default.",
)

PADAX = Study(
    "padax",
    (
        *(ours(f"padam lr {lr:g}", "padam", lr=lr) for lr in (0.3, 0.1, 0.03, 0.01)),
        *(ours(f"padax lr {lr:g}", "padax", lr=lr, wake=False) for lr in (0.3, 0.1, 0.03, 0.01)),
        adamw(),
        adaxw(),
    ),
    asks="What does the power 1/8 in the place of the square root do to Adam, and to AdaX?",
    seeds=3,
    note="p = 1/8, L2 5e-4. The paper does not say Padax's lr: four for both; claims are judged at Padam's own, 0.1.",
)

DECAY = Study(
    "decay",
    (
        Row("adam", "torch:Adam", dict(lr=1e-3, weight_decay=5e-4)),
        adamw(),
        ours("adax", "adax", lr=1.5e-3, weight_decay=5e-4, wake=False),
        adaxw(),
    ),
    asks="Is decoupled weight decay better than L2, for Adam and for AdaX?",
    seeds=3,
    recipe=Recipe(model="resnet18"),
    note="ResNet-18. The paper does not say the L2 rows' lr: AdaX's is the released class's default, Adam's 1e-3.",
)

LR = Study(
    "lr",
    tuple(
        adaxw(f"adaxw lr {lr:g}", lr=lr) for lr in (1e-2, 5e-3, 4e-3, 3e-3, 2.5e-3, 1e-3, 1e-4, 5e-5, 1e-5)
    ),
    asks="How far may AdaX-W's learning rate be from the paper's?",
    seeds=3,
    note="The nine rates that the paper tried; weight decay the paper's.",
)

BETA1 = Study(
    "beta1",
    tuple(adaxw(f"adaxw b1 {b1:g}", betas=(b1, 1e-4)) for b1 in (0.0, 0.5, 0.9, 0.99)),
    asks="Which b1 suits AdaX-W?",
    seeds=3,
    note="The paper's values are only in a missing figure; these are ours.",
)

BETA2 = Study(
    "beta2",
    tuple(adaxw(f"adaxw b2 {b2:g}", betas=(0.9, b2)) for b2 in (1e-3, 1e-4, 1e-5)),
    asks="Does b2 matter to AdaX-W?",
    seeds=3,
    note="The paper's three values: b2 T is 71, 7 and 0.7.",
)

RUNTIME = Study(
    "runtime",
    (adamw(), adaxw()),
    asks="Does AdaX-W take as long as AdamW?",
    seeds=5,
    recipe=Recipe(epochs=10),
    alone=True,
    note="Ten epochs, one network at a time, the two methods in turn; seconds are those of the ten epochs.",
)

ZOO = Study(
    "zoo",
    (
        ours("adagrad", "adagrad", lr=1e-2, weight_decay=5e-4),
        ours("rmsprop", "rmsprop", lr=1e-3, weight_decay=5e-4),
        ours("adam", "adam", lr=1e-3, weight_decay=5e-4),
        ours("amsgrad", "amsgrad", lr=1e-3, weight_decay=5e-4),
        ours("adashift", "adashift", lr=1e-3, weight_decay=5e-4),
        ours("nosadam", "nosadam", lr=1e-3, weight_decay=5e-4),
        ours("padam", "padam"),
        ours("adax", "adax", lr=1.5e-3, weight_decay=5e-4, wake=False),
        ours("padax", "padax", wake=False),
    ),
    asks="Where do the other methods of the paper's Table 1 end?",
    seeds=1,
    note="Every method of Table 1 that table2 has not, in its L2 form (5e-4), at the documented lr (RMSProp 1e-3).",
)

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        TABLE2,
        TUNING,
        TUNED,
        TRACE,
        TRACE_LR,
        EPSILON,
        PADAX,
        DECAY,
        LR,
        BETA1,
        BETA2,
        RUNTIME,
        ZOO,
    )
}
