"""Claims on CIFAR-10 that were added later, and the retests of claims that their study left open.

These claims were added after most studies had been run. If the results of its study were known, a claim is marked post
hoc: its rule is one of those that had been fixed before, but its rows were chosen with knowledge of the results.
"""

from __future__ import annotations

from dataclasses import replace

from adaxlab.claim import Claim, notes
from adaxlab.paper.cifar10_claims import (
    AFTER_TRACE,
    BEFORE,
    BEYOND,
    BOTH,
    DECAY,
    FAST_START,
    FIGURE3B,
    FIGURE4,
    HELD_OUT,
    PADAM_LR,
    PLANNED,
    SEED_0,
    STEP_SIZE,
    WITHIN,
    against_sgdm,
    decay,
    faster,
    on,
)

CONTROL = "Beyond the paper: float32 on CIFAR-10"
LOW_BIT = "Beyond the paper: 8-bit state on CIFAR-10"
OTHERS = "Beyond the paper: AdamNX (arXiv 2511.13465) on CIFAR-10"
AT_BEST = "each at its best lr"
OWN_DECAY = f"{AT_BEST}; weight decay not tuned: AdamNX's default of 0.01, and the AdaX paper's"
LIKE = "the rule that AdaX-W was judged by (fresh-like-sgdm)"
tested = on("table2", "Section 5.1, Figure 1b", measure="early test accuracy")

POST_HOC = (
    *(
        on("trace-lr", FIGURE3B, "larger", BOTH, ours=True)(
            id,
            f"At {method}'s lr, AdaX's second moment is larger than AdamW's",
            f"adaxw lr {lr}",
            f"adamw lr {lr}",
            note=AFTER_TRACE,
        )
        for id, method, lr in (
            ("trace-same-lr", "AdamW", "1e-3"),
            ("trace-same-lr-adax", "AdaX-W", "5e-3"),
        )
    ),
    *against_sgdm(faster, "amsgrad-fast-start", f"AMSGrad's {FAST_START}", "amsgradw", post_hoc=True),
    *(
        on(
            "tuned",
            STEP_SIZE,
            paper="1e-3 is best of 1e-2, 3e-3, 1e-3, 3e-4, 1e-4",
            note=notes(HELD_OUT, SEED_0),
        )(f"lr-best-{row}", f"{method} is best at lr 1e-3", f"table2: {row}", row, post_hoc=True)
        for row, method in (("adamw", "AdamW"), ("amsgradw", "AMSGrad(W)"))
    ),
    on("lr", STEP_SIZE)(
        "lr-best-adaxw",
        "AdaX-W is best at lr 5e-3",
        "adaxw lr 0.005",
        "adaxw lr 0.01",
        paper="5e-3 is best of nine from 1e-2 to 1e-5",
        note="compared with 1e-2, the next larger lr that the paper tried",
        post_hoc=True,
    ),
    *(
        on("padax", FIGURE4, measure="early accuracy", note=PADAM_LR, post_hoc=True)(id, text, a, b)
        for id, text, a, b in (
            ("padam-slower", "The power 1/8 makes Adam's convergence slower", "adamw", "padam lr 0.1"),
            ("padax-slower", "The power 1/8 makes AdaX's training slower", "adaxw", "padax lr 0.1"),
        )
    ),
    decay(
        "decoupled-adax-adam", "With decoupled decay, AdaX is better than Adam", "adaxw", "adamw", note=BEFORE
    ),
    *(
        on("decay", DECAY, measure="early accuracy", note=BEFORE)(
            f"decay-{id}-train",
            f"Training is better with decoupled decay than with L2, for {method}",
            f"{id}w",
            id,
        )
        for id, method in (("adax", "AdaX"), ("adam", "Adam"))
    ),
    *(
        claim
        for id, text, row in (
            ("adam-fast-start", f"Adam's {FAST_START}", "adamw"),
            ("amsgrad-fast-start", f"AMSGrad's {FAST_START}", "amsgradw"),
            ("adaxw-faster-sgdm", "AdaX-W converges faster than SGDM", "adaxw"),
        )
        for claim in against_sgdm(
            tested, f"{id}-test", f"{text}, measured by test accuracy", row, post_hoc=True
        )
    ),
    *(
        on("sgdm-lr", STEP_SIZE, paper="0.1 is best of 10, 1, 0.1, 0.01, 0.001")(
            id, f"SGDM is best at lr 0.1: better than at {lr}", "sgdm lr 0.1", f"sgdm lr {lr}"
        )
        for id, lr in (("lr-best-sgdm", "1"), ("lr-best-sgdm-below", "0.01"))
    ),
    *(
        on("table2-fp32", CONTROL, "similar", margin=0.3, ours=True, note=WITHIN)(
            f"fp32-{row}",
            f"{method} has a similar final accuracy in float32 and in bfloat16",
            row,
            f"table2-new: {row}",
        )
        for row, method in (("adamw", "AdamW"), ("adaxw", "AdaX-W"))
    ),
    on("table2-fp32", CONTROL, ours=True)(
        "fp32-adaxw-over-adamw", "In float32, AdaX-W has a higher final accuracy than AdamW", "adaxw", "adamw"
    ),
    *(
        on("eight-bit", LOW_BIT, "similar", margin=0.2, ours=True, note="within 0.2 points")(
            f"eight-bit-{row}",
            f"{method} has a similar final accuracy with 8-bit and with float32 state",
            f"{row}, 8-bit",
            f"{row}, float32",
        )
        for row, method in (("adamw", "AdamW"), ("adaxw", "AdaX-W"))
    ),
    *(
        on("adamnx", OTHERS, ours=True, note=note)(id, text, a, b)
        for id, text, a, b, note in (
            (
                "adamnx-over-adam",
                "AdamNX has a higher final accuracy than AdamW",
                "adamnx",
                "adamw",
                f"{OWN_DECAY} 0.1 for AdamW",
            ),
            (
                "adamnx-over-adam-0.01",
                "AdamNX has a higher final accuracy than AdamW with a weight decay of 0.01",
                "adamnx",
                "adamw, decay 0.01",
                f"{AT_BEST}; the same weight decay",
            ),
            (
                "adamnx-over-adax",
                "AdamNX has a higher final accuracy than AdaX-W",
                "adamnx",
                "adaxw",
                f"{OWN_DECAY} 0.05 for AdaX-W",
            ),
            (
                "adamnx-decay",
                "A weight decay of 0.01 instead of 0.05 improves AdaX-W with a plain eps and a debiased mean",
                "adamnx",
                "adaxw, eps 1e-8, debiased mean",
                f"{AT_BEST} (0.016 and 0.008); b2 differs by 0.5% as well",
            ),
        )
    ),
    *(
        on(
            "fresh",
            BEYOND,
            "similar",
            margin=0.3,
            ours=True,
            post_hoc=True,
            note=f"{WITHIN}; {AT_BEST}; {LIKE}",
        )(f"fresh-{row}-like-sgdm", f"{method} yields performance similar to SGDM's", row, "sgdm")
        for row, method in (("adamw", "AdamW"), ("amsgradw", "AMSGrad(W)"))
    ),
    *(
        on("adamnx", OTHERS, "similar", margin=0.3, ours=True, note=f"{WITHIN}; {AT_BEST}{rates}")(
            id, text, a, b
        )
        for id, text, a, b, rates in (
            (
                "adamnx-mean",
                "A debiased mean does not change the final accuracy of AdaX-W with a plain eps",
                "adaxw, eps 1e-8, debiased mean",
                "adaxw, eps 1e-8",
                "",
            ),
            (
                "adamnx-eps",
                "A plain eps of 1e-8 does not change the final accuracy of AdaX-W",
                "adaxw, eps 1e-8",
                "adaxw",
                " (0.008 and 0.004: part of the difference may be that of the rates)",
            ),
        )
    ),
    on("adamnx", OTHERS, ours=True, post_hoc=True, note=f"{AT_BEST} of seven, 60 epochs")(
        "adamnx-adaxw-over-adamw", "AdaX-W has a higher final accuracy than AdamW", "adaxw", "adamw"
    ),
)
RETESTS = {
    "table2-new": (
        "table2.sgdm-he",
        "amsgradw-over-adamw",
        "adaxw-like-sgdm",
        "adaxw-like-sgdm-he",
        "adam-fast-start-he",
        *(
            f"{id}-test{he}"
            for id in ("adam-fast-start", "amsgrad-fast-start", "adaxw-faster-sgdm")
            for he in ("", "-he")
        ),
    ),
    "catch-up": ("fresh-amsgradw-not-sgdm",),
    "lr-new": ("lr-robust", "lr-small", "lr-best-adaxw"),
    "padax-new": ("padam-adam", "padax-adax", "padam-adax", "padam-slower", "padax-slower"),
    "beta1-new": ("beta1",),
    "beta2-new": ("beta2-larger", "beta2-smaller"),
    "epsilon-new": ("eps-adax", "eps-adax-default"),
    "decay-30": (
        "decay-adax",
        "decay-adam",
        "l2-adax-adam",
        "decoupled-adax-adam",
        "decay-adax-train",
        "decay-adam-train",
    ),
}
"""The claims that each study judges again."""
_RETEST = {f"cifar10.{id}": f"cifar10/{study}" for study, ids in RETESTS.items() for id in ids}
CLAIMS: tuple[Claim, ...] = tuple(
    replace(claim, retest=_RETEST.get(claim.id, "")) for claim in (*PLANNED, *POST_HOC)
)
