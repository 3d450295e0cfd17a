"""The claims that CIFAR-10 can judge, and the rule for each: written before the runs.

Accuracy is that of the last epoch (182), in percent of the test set; no epoch is chosen by its test accuracy. Seeds are
0, 1, 2, ...; a row's mean has Student's 95% interval over them. Rows of one seed share initial weights, data order
and crops, so differences between rows are taken seed by seed and judged by Student's paired 95% interval.

    better(a, b)        a's accuracy minus b's: held if the whole interval is above 0, not held if it is below 0
    similar(a, b, m)    held if the whole interval of the difference is within +-m, not held if it is outside
    value(a)            our interval and the paper's mean +- margin: held if they overlap, not held if they do not
    faster(a, b)        training accuracy, averaged over the epochs 1..99 (before the first drop of lr), as `better`
    below(a, m)         the trace (mean of sqrt(v-hat)) of a at iteration 1000: held if its whole interval is below m
    larger(a, b)        the ratio of the traces of a and b, seed by seed, as `better` with 1 in the place of 0: at
                        iteration 1000 and at the last one; held if both are
    as-fast(a, b, m)    seconds an epoch of a over those of b: held if the whole interval is within 1 +- m

Each claim about SGDM is judged at both of its weight decays; the twins at 1e-4 of three of them were asked for after
the run, by the rule that stood there before it, and say so.

Fewer than 3 seeds decide nothing. A diverged run (loss not finite, or accuracy at most 15%) cannot hold a claim of its
method.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UNTIL = 99
"""Epochs before the first drop of the learning rate, over which speed is averaged."""
FLOOR = 15.0
"""A final accuracy that is no more than this is a run that failed."""
LEAST = 3
"""Fewer seeds decide nothing."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, the study that judges it and the rule."""

    id: str
    where: str
    text: str
    study: str
    rule: Literal["better", "similar", "value", "faster", "below", "larger", "as-fast"]
    a: str
    b: str = ""
    margin: float = 0.0
    paper: float | tuple[float, float] | str | None = None
    note: str = ""

    @property
    def says(self) -> str:
        """The paper's value in words."""
        if isinstance(self.paper, tuple):
            return f"{self.paper[0]:.2f} +- {self.paper[1]:.2f}"
        if isinstance(self.paper, float):
            return f"{self.paper:+.2f}"
        return self.paper or "read off a figure"


CLAIMS: tuple[Claim, ...] = (
    Claim(
        "cifar10.table2.sgdm",
        "Section 5.1, Table 2",
        "SGDM reaches 92.30 +- 0.09",
        "table2",
        "value",
        "sgdm-5e-4",
        paper=(92.30, 0.09),
        note="weight decay 5e-4, as the released code",
    ),
    Claim(
        "cifar10.table2.sgdm-he",
        "Section 5.1, Table 2",
        "SGDM reaches 92.30 +- 0.09",
        "table2",
        "value",
        "sgdm-1e-4",
        paper=(92.30, 0.09),
        note="weight decay 1e-4, as the text ('the same weight decays as in the original papers')",
    ),
    Claim(
        "cifar10.table2.adamw",
        "Section 5.1, Table 2",
        "AdamW reaches 91.86 +- 0.04",
        "table2",
        "value",
        "adamw",
        paper=(91.86, 0.04),
    ),
    Claim(
        "cifar10.table2.amsgradw",
        "Section 5.1, Table 2",
        "AMSGrad(W) reaches 92.04 +- 0.05",
        "table2",
        "value",
        "amsgradw",
        paper=(92.04, 0.05),
    ),
    Claim(
        "cifar10.table2.adaxw",
        "Section 5.1, Table 2",
        "AdaX-W reaches 92.32 +- 0.04",
        "table2",
        "value",
        "adaxw",
        paper=(92.32, 0.04),
    ),
    Claim(
        "cifar10.adaxw-over-adamw",
        "Section 5.1, Table 2",
        "AdaX-W ends above AdamW",
        "table2",
        "better",
        "adaxw",
        "adamw",
        paper=0.46,
    ),
    Claim(
        "cifar10.adaxw-over-amsgradw",
        "Section 5.1, Table 2",
        "AdaX-W ends above AMSGrad(W)",
        "table2",
        "better",
        "adaxw",
        "amsgradw",
        paper=0.28,
    ),
    Claim(
        "cifar10.amsgradw-over-adamw",
        "Section 5.1, Table 2",
        "AMSGrad(W) ends above AdamW",
        "table2",
        "better",
        "amsgradw",
        "adamw",
        paper=0.18,
    ),
    Claim(
        "cifar10.adam-not-sgdm",
        "Section 5.1",
        "Adam's final accuracy does not catch up with SGDM's",
        "table2",
        "better",
        "sgdm-5e-4",
        "adamw",
        paper=0.44,
    ),
    Claim(
        "cifar10.adam-not-sgdm-he",
        "Section 5.1",
        "Adam's final accuracy does not catch up with SGDM's",
        "table2",
        "better",
        "sgdm-1e-4",
        "adamw",
        paper=0.44,
        note="SGDM with weight decay 1e-4; asked for after the run of the study",
    ),
    Claim(
        "cifar10.amsgrad-not-sgdm",
        "Section 5.1",
        "AMSGrad's final accuracy does not catch up with SGDM's",
        "table2",
        "better",
        "sgdm-5e-4",
        "amsgradw",
        paper=0.26,
    ),
    Claim(
        "cifar10.amsgrad-not-sgdm-he",
        "Section 5.1",
        "AMSGrad's final accuracy does not catch up with SGDM's",
        "table2",
        "better",
        "sgdm-1e-4",
        "amsgradw",
        paper=0.26,
        note="SGDM with weight decay 1e-4; asked for after the run of the study",
    ),
    Claim(
        "cifar10.adaxw-like-sgdm",
        "Section 5.1",
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
        "Section 5.1",
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
        "Section 5.1, Figure 1a",
        "AdaX-W converges faster than SGDM",
        "table2",
        "faster",
        "adaxw",
        "sgdm-5e-4",
    ),
    Claim(
        "cifar10.adaxw-faster-sgdm-he",
        "Section 5.1, Figure 1a",
        "AdaX-W converges faster than SGDM",
        "table2",
        "faster",
        "adaxw",
        "sgdm-1e-4",
        note="SGDM with weight decay 1e-4",
    ),
    Claim(
        "cifar10.adam-fast-start",
        "Section 5.1, Figure 1a",
        "Adam's initial convergence is faster than SGDM's",
        "table2",
        "faster",
        "adamw",
        "sgdm-5e-4",
    ),
    Claim(
        "cifar10.adam-fast-start-he",
        "Section 5.1, Figure 1a",
        "Adam's initial convergence is faster than SGDM's",
        "table2",
        "faster",
        "adamw",
        "sgdm-1e-4",
        note="SGDM with weight decay 1e-4; asked for after the run of the study",
    ),
    Claim(
        "cifar10.trace-adam",
        "Section 5.2, Figure 3b",
        "Adam's average second moment falls to a very small number in less than 1000 iterations",
        "trace",
        "below",
        "adamw",
        margin=4e-4,
        paper="around 2e-4",
        note="very small: below 4e-4 at iteration 1000",
    ),
    Claim(
        "cifar10.trace-adax",
        "Section 5.2, Figure 3b",
        "AdaX's second moment decreases more slowly to a much larger number",
        "trace",
        "larger",
        "adaxw",
        "adamw",
    ),
    Claim(
        "cifar10.eps-adam",
        "Section 5.2, Figure 3c-d",
        "A larger eps improves AdamW",
        "epsilon",
        "better",
        "adamw eps 1e-3",
        "adamw eps 1e-8",
        paper=0.35,
    ),
    Claim(
        "cifar10.eps-adax",
        "Section 5.2, Figure 3c-d",
        "AdaX-W is not affected by eps",
        "epsilon",
        "similar",
        "adaxw eps 1e-3",
        "adaxw eps 1e-8",
        margin=0.3,
        paper="no effect",
        note="within 0.3 points",
    ),
    Claim(
        "cifar10.eps-adax-default",
        "Section 5.2",
        "AdaX-W is not affected by eps",
        "epsilon",
        "similar",
        "adaxw eps 1e-3",
        "adaxw eps 1e-12",
        margin=0.3,
        paper="no effect",
        note="against the default 1e-12; within 0.3 points",
    ),
    Claim(
        "cifar10.padam-adam",
        "Section 5.3, Figure 4",
        "The power 1/8 improves Adam",
        "padax",
        "better",
        "padam lr 0.1",
        "adamw",
    ),
    Claim(
        "cifar10.padax-adax",
        "Section 5.3, Figure 4",
        "The power 1/8 makes AdaX worse",
        "padax",
        "better",
        "adaxw",
        "padax lr 0.1",
    ),
    Claim(
        "cifar10.padam-adax",
        "Section 5.3, Figure 4",
        "Padam does not catch up with AdaX-W",
        "padax",
        "better",
        "adaxw",
        "padam lr 0.1",
    ),
    Claim(
        "cifar10.decay-adax",
        "Appendix, L2 against decoupled",
        "Decoupled decay is better than L2 for AdaX",
        "decay",
        "better",
        "adaxw",
        "adax",
        note="ResNet-18",
    ),
    Claim(
        "cifar10.decay-adam",
        "Appendix, L2 against decoupled",
        "Decoupled decay is better than L2 for Adam",
        "decay",
        "better",
        "adamw",
        "adam",
        note="ResNet-18",
    ),
    Claim(
        "cifar10.l2-adax-adam",
        "Appendix, L2 against decoupled",
        "With L2, AdaX is better than Adam",
        "decay",
        "better",
        "adax",
        "adam",
        note="ResNet-18",
    ),
    Claim(
        "cifar10.lr-robust",
        "Appendix, step size",
        "AdaX-W is robust to small changes of lr",
        "lr",
        "similar",
        "adaxw lr 0.004",
        "adaxw lr 0.005",
        margin=0.3,
        note="4e-3 against 5e-3; within 0.3 points",
    ),
    Claim(
        "cifar10.lr-small",
        "Appendix, step size",
        "A very small lr (1e-3) tests badly",
        "lr",
        "better",
        "adaxw lr 0.005",
        "adaxw lr 0.001",
    ),
    Claim(
        "cifar10.beta1",
        "Appendix, beta1",
        "b1 = 0.9 is best",
        "beta1",
        "better",
        "adaxw b1 0.9",
        "adaxw b1 0.99",
        note="against 0.99; the paper's other values are only in a missing figure",
    ),
    Claim(
        "cifar10.beta2-larger",
        "Appendix, beta2",
        "AdaX-W is not sensitive to b2",
        "beta2",
        "similar",
        "adaxw b2 0.001",
        "adaxw b2 0.0001",
        margin=0.3,
        note="1e-3 against 1e-4; within 0.3 points",
    ),
    Claim(
        "cifar10.beta2-smaller",
        "Appendix, beta2",
        "AdaX-W is not sensitive to b2",
        "beta2",
        "similar",
        "adaxw b2 1e-05",
        "adaxw b2 0.0001",
        margin=0.3,
        note="1e-5 against 1e-4; within 0.3 points",
    ),
    Claim(
        "cifar10.runtime",
        "Appendix, runtime",
        "AdaX-W takes about as long as AdamW",
        "runtime",
        "as-fast",
        "adaxw",
        "adamw",
        margin=0.05,
        paper="0.35 h against 0.36 h",
        note="within 5%; a stack of 5 runs of one method at a time",
    ),
)
