"""The CIFAR-10 studies as data: `adax reproduce cifar10/table2`. Settings are the paper's; notes add the rest.

ResNet-20, batch 128, 182 epochs, lr x0.1 after epochs 100 and 150, bfloat16 on a GPU. Runs that differ in optimizer and
seed alone train together (`adaxlab.execute.stack`). Runs of one seed share initial weights, data order and crops, so
methods are compared seed by seed.

    tuning   trains on 45,056 images and is judged on the other 4,944, chosen once and for all
    others   train on all 50,000 images and are judged on the test set

`tuning` was run with seed 0, which final runs use as well; `fresh` has seeds that no study has used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adaxlab.paper.cifar10_claims import CLAIMS
from adaxlab.study import Row, Study, Tuning
from adaxopt.zoo import METHODS

__all__ = ["CLAIMS", "STUDIES", "TITLE"]

EPOCHS = 182
STEP = {"name": "step", "milestones": (100 / EPOCHS, 150 / EPOCHS), "gamma": 0.1}
HOLDOUT = 4944
Paper = tuple[float, float] | None


def sgdm(name: str = "sgdm", weight_decay: float = 5e-4, lr: float = 0.1, paper: Paper = None) -> Row:
    """Momentum 0.9 and L2, torch's."""
    return Row(name, "torch:SGD", dict(lr=lr, momentum=0.9, weight_decay=weight_decay), paper=paper)


def adamw(name: str = "adamw", paper: Paper = None, **options: Any) -> Row:
    """torch's AdamW at the paper's lr 1e-3 and weight decay 0.1."""
    return Row(name, "torch:AdamW", {**dict(lr=1e-3, weight_decay=0.1), **options}, paper=paper)


def adaxw(name: str = "adaxw", paper: Paper = None, **options: Any) -> Row:
    """The library's AdaX-W at the paper's lr 5e-3 and weight decay 5e-2, as published: without the guard for
    coordinates that receive their first gradient late."""
    return Row(name, "adaxw", {**dict(lr=5e-3, weight_decay=5e-2, wake=False), **options}, paper=paper)


def ours(name: str, method: str, **options: Any) -> Row:
    """Any method of the zoo in the library's engine, at its documented lr unless another is given."""
    return Row(name, method, {"lr": METHODS[method].defaults["lr"], **options})


def _study(
    name: str, where: str, asks: str, rows: tuple[Row, ...], title: str, note: str, **rest: Any
) -> Study:
    options = {"model": "resnet20", "precision": "bf16", **rest.pop("task_options", {})}
    given: dict[str, Any] = {"epochs": EPOCHS, "batch_size": 128, "schedule": STEP, **rest}
    given |= {"where": where, "asks": asks, "title": title, "note": note}
    return Study("cifar10", rows, f"cifar10/{name}", executor="stack", task_options=options, **given)


TABLE2 = _study(
    "table2",
    "table 2, fig. 1",
    "accuracy of the five, 5 seeds",
    (
        sgdm("sgdm-5e-4", 5e-4, paper=(92.30, 0.09)),
        sgdm("sgdm-1e-4", 1e-4, paper=(92.30, 0.09)),
        adamw("adamw", (91.86, 0.04)),
        adamw("amsgradw", (92.04, 0.05), amsgrad=True),
        adaxw("adaxw", (92.32, 0.04)),
    ),
    "Does the paper's main table hold: its methods at its own learning rates?",
    "SGDM at the released code's weight decay (5e-4) and at the text's (1e-4), both beside the paper's one row.",
    seeds=5,
)

_METHODS = (sgdm(), adamw(), adamw("amsgradw", amsgrad=True), adaxw())
_RATES = {
    "sgdm": (1.0, 0.3, 0.1, 0.03, 0.01),
    "adamw": (1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
    "amsgradw": (1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
    "adaxw": (5e-2, 1.5e-2, 5e-3, 1.5e-3, 5e-4),
}

TUNING = _study(
    "tuning",
    "table 2",
    "five learning rates for each method",
    tuple(replace(row, rates=_RATES[row.name]) for row in _METHODS),
    "Which learning rate suits each method, with as many tries for each, and without a look at the test set?",
    "Five learning rates each, a decade to either side of the paper's own, the best in bold. Without the images "
    "that judge, 45,056 are left, 352 whole batches. The paper tried 5 for the others and 9 for AdaX-W, on the test "
    "set.",
    seeds=0,
    tuning=Tuning(5, first_seed=0),
    task_options={"holdout": HOLDOUT},
)

TUNED = _study(
    "tuned",
    "table 2",
    "each method at its best lr, 5 seeds",
    _METHODS,
    "Does the order of the methods stay when each has the learning rate that suits it?",
    "Each method at the best of its five learning rates (study tuning), weight decay the paper's: the whole "
    "training set, judged on the test set. SGDM's and AdaX-W's best are the paper's own, so these are table2's runs.",
    seeds=5,
    follows="cifar10/tuning",
)

FRESH = _study(
    "fresh",
    "ours",
    "the same on ten fresh seeds",
    _METHODS,
    "Does the order of the methods stay on seeds that nothing has used?",
    "The rows of `tuned`, each at the best of its five learning rates, on ten seeds (100 to 109) that no other study "
    "has used. Written before the runs.",
    seeds=10,
    first_seed=100,
    follows="cifar10/tuning",
)

TRACE = _study(
    "trace",
    "fig. 3b",
    "mean of sqrt(v-hat) over training",
    (adamw(), adaxw()),
    "How large is the second moment along training, in AdamW and in AdaX-W?",
    "Shown below: the mean of sqrt(v-hat) over the parameters, as the caption of the paper's Figure 3b has it; "
    "its text has the average of the second moments. AdaX-W's kernel changed between table2 and this "
    "study: the same rule by its tests, rounded otherwise.",
    task_options={"trace": True},
)

TRACE_LR = _study(
    "trace-lr",
    "ours",
    "the same at equal learning rates",
    (
        *(adamw(f"adamw lr {lr}", lr=float(lr)) for lr in ("1e-3", "5e-3")),
        *(adaxw(f"adaxw lr {lr}", lr=float(lr)) for lr in ("1e-3", "5e-3")),
    ),
    "Is the second moment smaller in AdaX-W because of its memory, or because of its learning rate?",
    "Both methods at AdamW's lr and at AdaX-W's, 7,820 iterations: no drop of lr. Ours; asked for when `trace` "
    "had been seen.",
    epochs=20,
    schedule="constant",
    task_options={"trace": True},
)

EPSILON = _study(
    "epsilon",
    "fig. 3c-d",
    "does eps matter",
    (
        *(adamw(f"adamw eps {eps}", eps=float(eps)) for eps in ("1e-8", "1e-5", "1e-3")),
        *(adaxw(f"adaxw eps {eps}", eps=float(eps)) for eps in ("1e-12", "1e-8", "1e-5", "1e-3")),
    ),
    "Does eps matter to AdamW, and to AdaX-W?",
    "The paper's three values, and AdaX-W's default.",
)

PADAX = _study(
    "padax",
    "fig. 4",
    "Padax beside Padam",
    (
        *(ours(f"padam lr {lr:g}", "padam", lr=lr) for lr in (0.3, 0.1, 0.03, 0.01)),
        *(ours(f"padax lr {lr:g}", "padax", lr=lr, wake=False) for lr in (0.3, 0.1, 0.03, 0.01)),
        adamw(),
        adaxw(),
    ),
    "What does the power 1/8 in the place of the square root do to Adam, and to AdaX?",
    "p = 1/8, L2 5e-4. The paper does not say Padax's lr: four for both; claims are judged at Padam's own, 0.1.",
)

DECAY = _study(
    "decay",
    "section 5.1",
    "L2 against decoupled decay, ResNet-18",
    (
        Row("adam", "torch:Adam", dict(lr=1e-3, weight_decay=5e-4)),
        adamw(),
        ours("adax", "adax", lr=1.5e-3, weight_decay=5e-4, wake=False),
        adaxw(),
    ),
    "Is decoupled weight decay better than L2, for Adam and for AdaX?",
    "ResNet-18. The paper does not say the L2 rows' lr: AdaX's is the released class's default, Adam's 1e-3.",
    task_options={"model": "resnet18"},
)

LR = _study(
    "lr",
    "appendix",
    "AdaX-W's learning rate",
    tuple(
        adaxw(f"adaxw lr {lr:g}", lr=lr) for lr in (1e-2, 5e-3, 4e-3, 3e-3, 2.5e-3, 1e-3, 1e-4, 5e-5, 1e-5)
    ),
    "How far may AdaX-W's learning rate be from the paper's?",
    "The nine rates that the paper tried; weight decay the paper's.",
)

BETA1 = _study(
    "beta1",
    "appendix",
    "AdaX-W's b1",
    tuple(adaxw(f"adaxw b1 {b1:g}", betas=(b1, 1e-4)) for b1 in (0.0, 0.5, 0.9, 0.99)),
    "Which b1 suits AdaX-W?",
    "The paper's values are only in a missing figure; these are ours.",
)

BETA2 = _study(
    "beta2",
    "appendix",
    "AdaX-W's b2",
    tuple(adaxw(f"adaxw b2 {b2:g}", betas=(0.9, b2)) for b2 in (1e-3, 1e-4, 1e-5)),
    "Does b2 matter to AdaX-W?",
    "The paper's three values: b2 T is 71, 7 and 0.7.",
)

RUNTIME = _study(
    "runtime",
    "appendix",
    "seconds of AdamW and of AdaX-W",
    (adamw(), adaxw()),
    "Does AdaX-W take as long as AdamW?",
    "Ten epochs, one network at a time, the two methods in turn; seconds are those of the ten epochs.",
    seeds=5,
    epochs=10,
    schedule="constant",
    share=False,
)

ZOO = _study(
    "zoo",
    "table 1",
    "every method of the table, a row each",
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
    "Where do the other methods of the paper's Table 1 end?",
    "Every method of Table 1 that table2 has not, in its L2 form (5e-4), at the documented lr (RMSProp 1e-3).",
    seeds=1,
)

TITLE = "CIFAR-10 (adax data get cifar10), a GPU"
STUDIES = (
    TABLE2,
    TUNING,
    TUNED,
    FRESH,
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
