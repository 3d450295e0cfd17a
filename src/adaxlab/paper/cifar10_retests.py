"""CIFAR-10 on new seeds: studies that judge claims left open at n = 1 to 5, and new questions. Data only.

Written before their runs. Seeds start at 200, which no study had used, so that only the new runs decide
(`Claim.retest`). n is computed from the recorded paired standard deviation: the n at which the interval would exclude
the margin if mean and standard deviation stayed the same (docs/claims.md has it for each open claim), and at least 5:

    table2-new    n = 13   adaxw-like-sgdm 6, at 1e-4 8, amsgradw-over-adamw 9, adam-fast-start-he 13
    catch-up      n = 23   fresh-amsgradw-not-sgdm
    beta1-new     n = 6    beta1 4
    beta2-new     n = 17   beta2-larger 6, beta2-smaller 17
    epsilon-new   n = 13   eps-adax-default 8, eps-adax 13; eps-adam needs more than 1,000 and is left out
    eight-bit     n = 16   the whole interval within 0.2 points in 9 of 10 repetitions, at a paired standard deviation
                           of 0.24 (AdamW and AdaX-W of `fresh`) and no difference: (1.96 + 1.28)*0.24/0.2 squared
    adamnx        n = 22   simulated at Holm's strictest level of six claims and a paired standard deviation of 0.30
                           (15 pairs of `memory-best`, also 60 epochs): a difference of 0.3 points is found with
                           probability 0.94, none is shown to be within 0.3 with probability 0.89
    lr-new, padax-new, sgdm-lr   n = 5: there were fewer than two seeds to estimate a standard deviation

Rows with the same settings and seed are one run, which the studies share.
"""

from __future__ import annotations

from dataclasses import replace

from adaxlab.paper.cifar10_rows import HOLDOUT, adamw, adaxw, make, ours, sgdm
from adaxlab.study import Row, Tuning

FIRST = 200
NEW = "On new seeds; the study was written before the runs."

TABLE2_NEW = make(
    "table2-new",
    "table 2, fig. 1",
    "the same on 13 new seeds",
    (
        sgdm("sgdm-5e-4", 5e-4, paper=(92.30, 0.09)),
        sgdm("sgdm-1e-4", 1e-4, paper=(92.30, 0.09)),
        adamw("adamw", (91.86, 0.04)),
        adamw("amsgradw", (92.04, 0.05), amsgrad=True),
        adaxw("adaxw", (92.32, 0.04)),
    ),
    "Do 13 new seeds decide the claims on the main table that five seeds left open?",
    NEW,
    seeds=13,
    first_seed=FIRST,
)
CATCH_UP = make(
    "catch-up",
    "section 1",
    "does AMSGrad(W) catch up with SGDM",
    (sgdm(), adamw("amsgradw", amsgrad=True)),
    "Does AMSGrad(W), at its best learning rate, catch up with SGDM?",
    NEW,
    seeds=23,
    first_seed=FIRST,
    follows="cifar10/tuning",
)
LR_NEW = make(
    "lr-new",
    "appendix",
    "AdaX-W's lr on new seeds",
    tuple(adaxw(f"adaxw lr {lr:g}", lr=lr) for lr in (1e-2, 5e-3, 4e-3, 1e-3)),
    "How sensitive is AdaX-W to its learning rate?",
    f"The four learning rates of `lr` to which claims refer. {NEW}",
    seeds=5,
    first_seed=FIRST,
)
PADAX_NEW = make(
    "padax-new",
    "fig. 4",
    "Padax and Padam on new seeds",
    (
        ours("padam lr 0.1", "padam", lr=0.1),
        ours("padax lr 0.1", "padax", lr=0.1, wake=False),
        adamw(),
        adaxw(),
    ),
    "What is the effect of the power 1/8 instead of the square root, in Adam and in AdaX?",
    f"p = 1/8, L2 5e-4, at Padam's lr of 0.1. {NEW}",
    seeds=5,
    first_seed=FIRST,
)
BETA1_NEW = make(
    "beta1-new",
    "appendix",
    "AdaX-W's b1 on new seeds",
    tuple(adaxw(f"adaxw b1 {b1:g}", betas=(b1, 1e-4)) for b1 in (0.9, 0.99)),
    "Is b1 = 0.9 better than 0.99 for AdaX-W?",
    NEW,
    seeds=6,
    first_seed=FIRST,
)
BETA2_NEW = make(
    "beta2-new",
    "appendix",
    "AdaX-W's b2 on new seeds",
    tuple(adaxw(f"adaxw b2 {b2:g}", betas=(0.9, b2)) for b2 in (1e-3, 1e-4, 1e-5)),
    "How sensitive is AdaX-W to b2?",
    f"b2*T is 71, 7 and 0.7. {NEW}",
    seeds=17,
    first_seed=FIRST,
)
EPSILON_NEW = make(
    "epsilon-new",
    "fig. 3c-d",
    "AdaX-W's eps on new seeds",
    tuple(adaxw(f"adaxw eps {eps}", eps=float(eps)) for eps in ("1e-12", "1e-8", "1e-3")),
    "How sensitive is AdaX-W to eps?",
    NEW,
    seeds=13,
    first_seed=FIRST,
)
SGDM_LR = make(
    "sgdm-lr",
    "appendix",
    "SGDM's learning rate",
    tuple(sgdm(f"sgdm lr {lr:g}", lr=lr) for lr in (1.0, 0.1, 0.01)),
    "Is 0.1 the best learning rate for SGDM, of those that the paper tried?",
    f"The best of the paper's five and its two neighbours; L2 5e-4. {NEW}",
    seeds=5,
    first_seed=FIRST,
)
DECAY_30 = make(
    "decay-30",
    "section 5.1",
    "L2 and decoupled decay, 30 epochs",
    (
        Row("adam", "torch:Adam", dict(lr=1e-3, weight_decay=5e-4)),
        adamw(),
        ours("adax", "adax", lr=1.5e-3, weight_decay=5e-4, wake=False),
        adaxw(),
    ),
    "Is decoupled weight decay better than L2, for Adam and for AdaX, in runs of 30 epochs instead of 182 (decay)?",
    f"ResNet-18, 30 epochs instead of 182 (the lr drops at the same shares of the run; b2*T = 1.2 instead of 7). {NEW}",
    task_options={"model": "resnet18"},
    epochs=30,
    seeds=5,
    first_seed=FIRST,
)
FLOAT32 = make(
    "table2-fp32",
    "ours",
    "a control in float32",
    (adamw(), adaxw()),
    "Does bfloat16 change the result of AdamW and of AdaX-W?",
    f"Float32 by three TF32 products. The runs are compared seed by seed with those of `table2-new`. {NEW}",
    task_options={"precision": "fp32"},
    seeds=5,
    first_seed=FIRST,
)

_ADAMNX = (
    adamw(),
    adamw("adamw, decay 0.01", weight_decay=1e-2),
    adaxw(),
    ours("adamnx", "adamnx", wake=False),
    adaxw("adaxw, eps 1e-8", eps=1e-8, eps_placement="plain"),
    ours(
        "adaxw, eps 1e-8, debiased mean", "adamnx", betas=(0.9, 1e-4), eps=1e-8, weight_decay=5e-2, wake=False
    ),
)
_ADAMNX_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
SHORT = (
    "60 epochs instead of 182 (the lr drops at the same shares of the run; b2*T = 2.1 to 2.4 instead of 7)."
)
ADAMNX_TUNING = make(
    "adamnx-tuning",
    "ours",
    "seven lr for AdamNX and its parts",
    tuple(replace(row, rates=_ADAMNX_RATES) for row in _ADAMNX),
    "Which learning rate is best for AdamNX, Adam, AdaX-W and the variants between them?",
    f"The same seven learning rates for every row, two seeds, judged on the held-out images; chance in this choice "
    f"adds to the differences of `adamnx`. {SHORT} If the best rate of a row is at an end of the grid, all rows get "
    f"another rate there before the final runs. {NEW}",
    epochs=60,
    seeds=0,
    tuning=Tuning(len(_ADAMNX_RATES), seeds=2, first_seed=20_000),
    task_options={"holdout": HOLDOUT},
    figures=("lr",),
)
ADAMNX = make(
    "adamnx",
    "ours",
    "AdamNX, Adam, AdaX at equal tuning",
    _ADAMNX,
    "Is AdamNX better than Adam and AdaX, and which of its differences from AdaX matters?",
    "AdamNX (arXiv 2511.13465) is AdaX-W with b2 = 1.005e-4, a debiased mean, a plain eps of 1e-8 and weight decay "
    "0.01. AdaX-W becomes AdamNX in three steps: its eps, its mean (AdamNX's rule has no other eps), its weight decay. "
    f"Each row is at the best of seven learning rates. {SHORT} {NEW}",
    epochs=60,
    seeds=22,
    first_seed=FIRST,
    follows="cifar10/adamnx-tuning",
    figures=("seeds", "difference"),
)

EIGHT_BIT = make(
    "eight-bit",
    "ours",
    "8-bit state against float32",
    tuple(
        Row(f"{name}, {state}", name, {**options, **({"state_dtype": "uint8"} if state == "8-bit" else {})})
        for name, options in (
            ("adamw", dict(lr=3e-3, weight_decay=0.1)),
            ("adaxw", dict(lr=5e-3, weight_decay=5e-2)),
        )
        for state in ("float32", "8-bit")
    ),
    "Does 8-bit state change the result of AdamW and AdaX-W?",
    f"The library's AdamW and AdaX-W, each at the best lr of `tuning`. {NEW}",
    seeds=16,
    first_seed=FIRST,
    baseline="adamw, float32",
    figures=("seeds", "difference"),
)

STUDIES = (
    TABLE2_NEW,
    CATCH_UP,
    LR_NEW,
    PADAX_NEW,
    BETA1_NEW,
    BETA2_NEW,
    EPSILON_NEW,
    SGDM_LR,
    DECAY_30,
    FLOAT32,
    ADAMNX_TUNING,
    ADAMNX,
    EIGHT_BIT,
)
