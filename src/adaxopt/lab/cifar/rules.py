"""The claims that CIFAR-10 can judge, and the rule for each: written before the runs.

Accuracy is that of the last epoch (182), in percent of the test set; no epoch is chosen by its test accuracy. Seeds are
0, 1, 2, ...; a row's mean has Student's 95% interval over them. Rows of one seed share initial weights, data order
and crops, so differences between rows are taken seed by seed and judged by Student's paired 95% interval.

    better(a, b)        a's accuracy minus b's: held if the whole interval is above 0, not held if it is below 0
    similar(a, b, m)    held if the whole interval of the difference is within +-m, not held if it is outside
    value(a)            our interval and the paper's mean +- margin: held if they overlap, not held if they do not
    faster(a, b)        training accuracy, averaged over the epochs 1..99 (before the first drop of lr), as `better`

Fewer than 3 seeds decide nothing. A diverged run (loss not finite, or accuracy at most 15%) cannot hold a claim of its
method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, the study that judges it and the rule."""

    id: str
    where: str
    text: str
    study: str
    rule: Literal["better", "similar", "value", "faster"]
    a: str
    b: str = ""
    margin: float = 0.0
    paper: Any = None
    note: str = ""


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "cifar10.table2.sgdm",
        "Table 2",
        "SGDM reaches 92.30 +- 0.09",
        "table2",
        "value",
        "sgdm-5e-4",
        paper=(92.30, 0.09),
        note="weight decay 5e-4, as the released code",
    ),
    Claim(
        "cifar10.table2.sgdm-he",
        "Table 2",
        "SGDM reaches 92.30 +- 0.09",
        "table2",
        "value",
        "sgdm-1e-4",
        paper=(92.30, 0.09),
        note="weight decay 1e-4, as the text ('the same weight decays as in the original papers')",
    ),
    Claim(
        "cifar10.table2.adamw",
        "Table 2",
        "AdamW reaches 91.86 +- 0.04",
        "table2",
        "value",
        "adamw",
        paper=(91.86, 0.04),
    ),
    Claim(
        "cifar10.table2.amsgradw",
        "Table 2",
        "AMSGrad(W) reaches 92.04 +- 0.05",
        "table2",
        "value",
        "amsgradw",
        paper=(92.04, 0.05),
    ),
    Claim(
        "cifar10.table2.adaxw",
        "Table 2",
        "AdaX-W reaches 92.32 +- 0.04",
        "table2",
        "value",
        "adaxw",
        paper=(92.32, 0.04),
    ),
    Claim(
        "cifar10.adaxw-over-adamw",
        "Table 2, section 5.1",
        "AdaX-W ends above AdamW",
        "table2",
        "better",
        "adaxw",
        "adamw",
        paper=0.46,
    ),
    Claim(
        "cifar10.adaxw-over-amsgradw",
        "Table 2, section 5.1",
        "AdaX-W ends above AMSGrad(W)",
        "table2",
        "better",
        "adaxw",
        "amsgradw",
        paper=0.28,
    ),
    Claim(
        "cifar10.amsgradw-over-adamw",
        "Table 2",
        "AMSGrad(W) ends above AdamW",
        "table2",
        "better",
        "amsgradw",
        "adamw",
        paper=0.18,
    ),
    Claim(
        "cifar10.adam-not-sgdm",
        "section 5.1",
        "Adam's final accuracy does not catch up with SGDM's",
        "table2",
        "better",
        "sgdm-5e-4",
        "adamw",
        paper=0.44,
    ),
    Claim(
        "cifar10.amsgrad-not-sgdm",
        "section 5.1",
        "AMSGrad's final accuracy does not catch up with SGDM's",
        "table2",
        "better",
        "sgdm-5e-4",
        "amsgradw",
        paper=0.26,
    ),
    Claim(
        "cifar10.adaxw-like-sgdm",
        "section 5.1",
        "AdaX-W yields performance similar to SGDM's",
        "table2",
        "similar",
        "adaxw",
        "sgdm-5e-4",
        margin=0.3,
        paper=0.02,
        note="similar: within 0.3 points",
    ),
    Claim(
        "cifar10.adaxw-like-sgdm-he",
        "section 5.1",
        "AdaX-W yields performance similar to SGDM's",
        "table2",
        "similar",
        "adaxw",
        "sgdm-1e-4",
        margin=0.3,
        paper=0.02,
        note="SGDM with weight decay 1e-4; similar: within 0.3 points",
    ),
    Claim(
        "cifar10.adaxw-faster-sgdm",
        "section 5.1, Figure 1a",
        "AdaX-W converges faster than SGDM",
        "table2",
        "faster",
        "adaxw",
        "sgdm-5e-4",
    ),
    Claim(
        "cifar10.adaxw-faster-sgdm-he",
        "section 5.1, Figure 1a",
        "AdaX-W converges faster than SGDM",
        "table2",
        "faster",
        "adaxw",
        "sgdm-1e-4",
        note="SGDM with weight decay 1e-4",
    ),
    Claim(
        "cifar10.adam-fast-start",
        "section 5.1, Figure 1a",
        "Adam's initial convergence is faster than SGDM's",
        "table2",
        "faster",
        "adamw",
        "sgdm-5e-4",
    ),
)
