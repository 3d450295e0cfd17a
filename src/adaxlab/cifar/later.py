"""Claims on sentences that were found to have none when most studies had been run; `rules.py` explains the rules.

Each says so in its note: the rule is one of those that stood there before, but whoever chose the rows had seen them.
Those of study `decay`, and those of `padax` and `lr` (one seed seen, which decides nothing), come before what decides.
A row of another study is named as in the records: `table2: adamw`.
"""

from __future__ import annotations

from adaxlab.cifar.claim import Claim

AFTER = "asked for after the run of the study"
ONE = "asked for after one seed was seen"
BEFORE = "ResNet-18; asked for before the study was run"

OURS = "ours; asked for after `trace` was seen, before `trace-lr` was run"

LATER: tuple[Claim, ...] = (
    Claim(
        "cifar10.trace-same-lr",
        "Section 5.2, Figure 3b",
        "At AdamW's lr, AdaX's second moment is larger than AdamW's",
        "trace-lr",
        "larger",
        "adaxw lr 1e-3",
        "adamw lr 1e-3",
        paper="(ours)",
        note=OURS,
    ),
    Claim(
        "cifar10.trace-same-lr-adax",
        "Section 5.2, Figure 3b",
        "At AdaX-W's lr, AdaX's second moment is larger than AdamW's",
        "trace-lr",
        "larger",
        "adaxw lr 5e-3",
        "adamw lr 5e-3",
        paper="(ours)",
        note=OURS,
    ),
    Claim(
        "cifar10.amsgrad-fast-start",
        "Section 5.1, Figure 1a",
        "AMSGrad's initial convergence is faster than SGDM's",
        "table2",
        "faster",
        "amsgradw",
        "sgdm-5e-4",
        note=AFTER,
    ),
    Claim(
        "cifar10.amsgrad-fast-start-he",
        "Section 5.1, Figure 1a",
        "AMSGrad's initial convergence is faster than SGDM's",
        "table2",
        "faster",
        "amsgradw",
        "sgdm-1e-4",
        note=f"SGDM with weight decay 1e-4; {AFTER}",
    ),
    Claim(
        "cifar10.lr-best-adamw",
        "Appendix, step size",
        "AdamW is best at lr 1e-3",
        "tuned",
        "better",
        "table2: adamw",
        "adamw",
        paper="1e-3 is best of 1e-2, 3e-3, 1e-3, 3e-4, 1e-4",
        note=f"against 3e-3, which the paper tried too and which was best on our held-out images; {AFTER}",
    ),
    Claim(
        "cifar10.lr-best-amsgradw",
        "Appendix, step size",
        "AMSGrad(W) is best at lr 1e-3",
        "tuned",
        "better",
        "table2: amsgradw",
        "amsgradw",
        paper="1e-3 is best of 1e-2, 3e-3, 1e-3, 3e-4, 1e-4",
        note=f"against 3e-3, which the paper tried too and which was best on our held-out images; {AFTER}",
    ),
    Claim(
        "cifar10.lr-best-adaxw",
        "Appendix, step size",
        "AdaX-W is best at lr 5e-3",
        "lr",
        "better",
        "adaxw lr 0.005",
        "adaxw lr 0.01",
        paper="5e-3 is best of nine from 1e-2 to 1e-5",
        note=f"against 1e-2, the next larger that the paper tried; {ONE}",
    ),
    Claim(
        "cifar10.padam-slower",
        "Section 5.3, Figure 4",
        "The power 1/8 makes Adam's convergence slower",
        "padax",
        "faster",
        "adamw",
        "padam lr 0.1",
        note=f"at Padam's own lr 0.1; {ONE}",
    ),
    Claim(
        "cifar10.padax-slower",
        "Section 5.3, Figure 4",
        "The power 1/8 makes AdaX's training slower",
        "padax",
        "faster",
        "adaxw",
        "padax lr 0.1",
        note=f"at Padam's own lr 0.1; {ONE}",
    ),
    Claim(
        "cifar10.decoupled-adax-adam",
        "Appendix, L2 against decoupled",
        "With decoupled decay, AdaX is better than Adam",
        "decay",
        "better",
        "adaxw",
        "adamw",
        note=BEFORE,
    ),
    Claim(
        "cifar10.decay-adax-train",
        "Appendix, L2 against decoupled",
        "Decoupled decay trains better than L2, for AdaX",
        "decay",
        "faster",
        "adaxw",
        "adax",
        note=BEFORE,
    ),
    Claim(
        "cifar10.decay-adam-train",
        "Appendix, L2 against decoupled",
        "Decoupled decay trains better than L2, for Adam",
        "decay",
        "faster",
        "adamw",
        "adam",
        note=BEFORE,
    ),
)
