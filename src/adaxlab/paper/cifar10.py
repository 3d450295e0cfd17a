"""The CIFAR-10 studies as data: `adax reproduce cifar10/table2`. Settings are the paper's; notes add the rest.

ResNet-20, batch 128, 182 epochs, lr x0.1 after epochs 100 and 150, bfloat16 on a GPU. Runs that differ in optimizer and
seed alone train together (`adaxlab.execute.stack`). Runs of one seed share initial weights, data order and crops, so
methods are compared seed by seed.

    tuning   trains on 45,056 images and is judged on the other 4,944, chosen once and for all
    others   train on all 50,000 images and are judged on the test set

`tuning` was run with seed 0, which the final runs of `tuned` use as well; `fresh` and the studies of
`cifar10_retests.py` have seeds that no study used before.
"""

from __future__ import annotations

from dataclasses import replace

from adaxlab.paper import cifar10_added_claims, cifar10_retests, memory_finals
from adaxlab.paper.cifar10_rows import HOLDOUT, adamw, adaxw, make, ours, sgdm
from adaxlab.study import Row, Tuning

__all__ = ["CLAIMS", "STUDIES", "TITLE"]

TABLE2 = make(
    "table2",
    "table 2, fig. 1",
    "accuracy of five rows, 5 seeds",
    (
        sgdm("sgdm-5e-4", 5e-4, paper=(92.30, 0.09)),
        sgdm("sgdm-1e-4", 1e-4, paper=(92.30, 0.09)),
        adamw("adamw", (91.86, 0.04)),
        adamw("amsgradw", (92.04, 0.05), amsgrad=True),
        adaxw("adaxw", (92.32, 0.04)),
    ),
    "Can the paper's main table be reproduced, with its methods at its learning rates?",
    "SGDM ran at the weight decay of the released code (5e-4) and at that of the text (1e-4); both are compared with "
    "the "
    "paper's single row.",
    seeds=5,
    figures=("seeds", "metric", "train-loss"),
)

_METHODS = (sgdm(), adamw(), adamw("amsgradw", amsgrad=True), adaxw())
_RATES = {
    "sgdm": (1.0, 0.3, 0.1, 0.03, 0.01),
    "adamw": (1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
    "amsgradw": (1e-2, 3e-3, 1e-3, 3e-4, 1e-4),
    "adaxw": (5e-2, 1.5e-2, 5e-3, 1.5e-3, 5e-4),
}

TUNING = make(
    "tuning",
    "table 2",
    "five learning rates for each method",
    tuple(replace(row, rates=_RATES[row.name]) for row in _METHODS),
    "Which learning rate is best for each method, with an equal number of trials and without using the test set?",
    "Five learning rates each, up to a decade on either side of the paper's; the best is in bold. Without the held-out "
    "images, 45,056 remain for training, 352 full batches. The paper tried 9 learning rates for AdaX-W and 5 for each "
    "of the others, on the test set.",
    seeds=0,
    tuning=Tuning(5, first_seed=0),
    task_options={"holdout": HOLDOUT},
    figures=("lr",),
)

TUNED = make(
    "tuned",
    "table 2",
    "each method at its best lr, 5 seeds",
    _METHODS,
    "Does the ranking of the methods hold when each uses its best learning rate?",
    "Each method at the best of its five learning rates (study tuning) and the paper's weight decay, trained on the "
    "whole training set and evaluated on the test set. The best rates of SGDM and AdaX-W are the paper's, so these are "
    "the runs of table2.",
    seeds=5,
    follows="cifar10/tuning",
    figures=("seeds", "difference"),
)

FRESH = make(
    "fresh",
    "ours",
    "the same on ten new seeds",
    _METHODS,
    "Does the ranking of the methods hold on seeds that no other study has used?",
    "The rows of `tuned`, each at the best of its five learning rates, on ten seeds (100 to 109) that no other study "
    "has used. The study was written before the runs.",
    seeds=10,
    first_seed=100,
    follows="cifar10/tuning",
    figures=("seeds", "difference"),
)

TRACE = make(
    "trace",
    "fig. 3b",
    "mean of sqrt(v-hat) over training",
    (adamw(), adaxw()),
    "How large is the second moment during training, in AdamW and in AdaX-W?",
    "The figure shows the mean of sqrt(v-hat) over the parameters, as in the caption of the paper's Figure 3b; "
    "the paper's text refers to the average of the second moments. AdaX-W's kernel changed between table2 and this "
    "study. Its tests show that it computes the same update, with different rounding.",
    task_options={"trace": True},
    figures=("second-moment",),
)

TRACE_LR = make(
    "trace-lr",
    "ours",
    "the same at equal learning rates",
    (
        *(adamw(f"adamw lr {lr}", lr=float(lr)) for lr in ("1e-3", "5e-3")),
        *(adaxw(f"adaxw lr {lr}", lr=float(lr)) for lr in ("1e-3", "5e-3")),
    ),
    "Is the second moment smaller in AdaX-W because of its memory, or because of its learning rate?",
    "Both methods at AdamW's lr and at AdaX-W's, 7,820 iterations at constant lr. This study is ours; it was added "
    "after the results of `trace` were known.",
    seeds=5,
    first_seed=200,
    epochs=20,
    schedule="constant",
    task_options={"trace": True},
    figures=("second-moment",),
)

EPSILON = make(
    "epsilon",
    "fig. 3c-d",
    "sensitivity to eps",
    (
        *(adamw(f"adamw eps {eps}", eps=float(eps)) for eps in ("1e-8", "1e-5", "1e-3")),
        *(adaxw(f"adaxw eps {eps}", eps=float(eps)) for eps in ("1e-12", "1e-8", "1e-5", "1e-3")),
    ),
    "How sensitive are AdamW and AdaX-W to eps?",
    "The paper's three values, and AdaX-W's default.",
    figures=("sweep",),
)

PADAX = make(
    "padax",
    "fig. 4",
    "Padax compared with Padam",
    (
        *(ours(f"padam lr {lr:g}", "padam", lr=lr) for lr in (0.3, 0.1, 0.03, 0.01)),
        *(ours(f"padax lr {lr:g}", "padax", lr=lr, wake=False) for lr in (0.3, 0.1, 0.03, 0.01)),
        adamw(),
        adaxw(),
    ),
    "What is the effect of the power 1/8 instead of the square root, in Adam and in AdaX?",
    "p = 1/8, L2 5e-4. The paper does not state Padax's lr, so both methods ran at four learning rates; claims are "
    "judged at Padam's, 0.1.",
    figures=("seeds", "sweep"),
)

DECAY = make(
    "decay",
    "section 5.1",
    "L2 and decoupled decay, ResNet-18",
    (
        Row("adam", "torch:Adam", dict(lr=1e-3, weight_decay=5e-4)),
        adamw(),
        ours("adax", "adax", lr=1.5e-3, weight_decay=5e-4, wake=False),
        adaxw(),
    ),
    "Is decoupled weight decay better than L2, for Adam and for AdaX?",
    "ResNet-18. The paper does not state the lr of the L2 rows: AdaX uses the default of the released class, Adam "
    "1e-3.",
    task_options={"model": "resnet18"},
    figures=("seeds", "metric"),
)

LR = make(
    "lr",
    "appendix",
    "AdaX-W's learning rate",
    tuple(
        adaxw(f"adaxw lr {lr:g}", lr=lr) for lr in (1e-2, 5e-3, 4e-3, 3e-3, 2.5e-3, 1e-3, 1e-4, 5e-5, 1e-5)
    ),
    "How sensitive is AdaX-W to its learning rate?",
    "The nine learning rates that the paper tried, with the paper's weight decay.",
    figures=("sweep",),
)

BETA1 = make(
    "beta1",
    "appendix",
    "AdaX-W's b1",
    tuple(adaxw(f"adaxw b1 {b1:g}", betas=(b1, 1e-4)) for b1 in (0.0, 0.5, 0.9, 0.99)),
    "Which b1 is best for AdaX-W?",
    "The paper shows its values only in a figure that is missing; the values here are ours.",
    figures=("sweep",),
)

BETA2 = make(
    "beta2",
    "appendix",
    "AdaX-W's b2",
    tuple(adaxw(f"adaxw b2 {b2:g}", betas=(0.9, b2)) for b2 in (1e-3, 1e-4, 1e-5)),
    "How sensitive is AdaX-W to b2?",
    "The paper's three values: b2*T is 71, 7 and 0.7.",
    figures=("sweep",),
)

RUNTIME = make(
    "runtime",
    "appendix",
    "run time of AdamW and AdaX-W",
    (adamw(), adaxw()),
    "Does AdaX-W take as long as AdamW?",
    "Ten epochs, one network at a time, alternating between the two methods; the seconds are for ten epochs.",
    seeds=5,
    epochs=10,
    schedule="constant",
    share=False,
)

ZOO = make(
    "zoo",
    "table 1",
    "every method of the table",
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
    "What accuracy do the other methods of the paper's Table 1 reach?",
    "Every method of Table 1 that is not in table2, in its L2 form (5e-4), at its documented lr (RMSProp 1e-3).",
    seeds=1,
    figures=("seeds",),
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
    *cifar10_retests.STUDIES,
    *memory_finals.CIFAR_STUDIES,
    memory_finals.CIFAR_RATES_STUDY,
)
CLAIMS = (*cifar10_added_claims.CLAIMS, *memory_finals.CIFAR_CLAIMS)
