"""The paper's sentences on VOC2012 that the CamVid stand-in can touch, and the rule for each: written before the runs.

The paper's IoU values are VOC2012's and a COCO-pretrained ResNet-101's; CamVid says nothing about them. What can be
looked at is which method ends above which, which trains faster, and what a run costs: at the paper's settings
(study camvid) and with equal tuning budgets (study tuning, ids that end in -tuned: comparisons of ours).

IoU is that of the last evaluation on the test split, in percent; no evaluation is chosen. Seeds are 0, 1, 2; rows of
one seed share the head's first weights and every crop, so differences are taken seed by seed and judged by Student's
paired 95% interval.

    better(a, b)        a's IoU minus b's: held if the whole interval is above 0, not held if it is below 0
    faster(a, b)        the training loss, averaged over the first three quarters: b's minus a's, as `better`
    as-fast(a, b, m)    time of a step of a over b's, round by round in turn on a device of their own
                        (benchmarks/voc.py): held if the whole interval is within 1 +- m
    lr-ratio(a, b, m)   the tuned lr of a over that of b: held if it is within a factor m of the paper's

Fewer than 3 seeds decide nothing, lr-ratio aside, which has no seeds. A diverged run cannot hold a claim of its method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from adaxlab.claims import OURS, and_the_papers, notes
from adaxlab.paper.voc import ADAMW, ADAXW, AMSGRADW, SGDM

QUARTERS = 3
"""Quarters over which training loss is averaged; the last is left out, where all have settled."""
SECTION = "Section 5.1, transfer learning: VOC2012 segmentation (stand-in: CamVid)"
BEYOND = "Beyond the paper: CamVid at tuned learning rates"
AT_ITS_OWN = "paper, at its own settings on VOC2012"
FASTER_NOTE = "faster: training loss over the first three quarters of the run"
SHORT_NOTE = "the paper's lr, in a tenth of its steps and with a head from scratch: see the same claim, tuned"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or a comparison of ours: `paper="(ours)"`), the study that judges it and the rule."""

    id: str
    text: str
    rule: Literal["better", "faster", "as-fast", "lr-ratio"]
    a: str
    b: str
    paper: str
    study: str = "camvid"
    margin: float = 0.0
    note: str = ""
    where: str = SECTION


SENTENCES = (
    Claim(
        "voc.adaxw-over-sgdm",
        "AdaX-W obtains a higher IoU than SGDM",
        "better",
        ADAXW,
        SGDM,
        "76.53 +- 0.14 against 76.28 +- 0.15",
    ),
    Claim(
        "voc.adaxw-faster-sgdm",
        "AdaX-W trains faster than SGDM",
        "faster",
        ADAXW,
        SGDM,
        "no number in the text",
        note=FASTER_NOTE,
    ),
    Claim(
        "voc.adaxw-over-adamw",
        "AdamW does not reach an IoU comparable to AdaX-W's",
        "better",
        ADAXW,
        ADAMW,
        "76.53 +- 0.14 against 74.62 +- 0.12",
    ),
    Claim(
        "voc.adaxw-over-amsgradw",
        "AMSGrad(W) does not reach an IoU comparable to AdaX-W's",
        "better",
        ADAXW,
        AMSGRADW,
        "76.53 +- 0.14 against 73.62 +- 0.09",
    ),
    Claim(
        "voc.sgdm-over-adamw",
        "AdamW does not reach an IoU comparable to SGDM's",
        "better",
        SGDM,
        ADAMW,
        "76.28 +- 0.15 against 74.62 +- 0.12",
    ),
    Claim(
        "voc.sgdm-over-amsgradw",
        "AMSGrad(W) does not reach an IoU comparable to SGDM's",
        "better",
        SGDM,
        AMSGRADW,
        "76.28 +- 0.15 against 73.62 +- 0.09",
    ),
    Claim(
        "voc.adamw-over-amsgradw",
        "AMSGrad(W) ends below AdamW",
        "better",
        ADAMW,
        AMSGRADW,
        "74.62 +- 0.12 against 73.62 +- 0.09",
    ),
)
AT_PAPER = tuple(replace(claim, note=notes(SHORT_NOTE, claim.note)) for claim in SENTENCES)
TUNED = tuple(
    replace(
        claim,
        id=f"{claim.id}-tuned",
        text=f"{claim.text}, both tuned here",
        study="tuning",
        where=BEYOND,
        paper=OURS,
        note=and_the_papers(claim.note, AT_ITS_OWN, claim.paper),
    )
    for claim in SENTENCES
)
CLAIMS: tuple[Claim, ...] = (
    *AT_PAPER,
    *TUNED,
    Claim(
        "voc.runtime",
        "A run of AdaX-W takes about as long as one of AdamW (Table 6)",
        "as-fast",
        ADAXW,
        ADAMW,
        "8.89 h against 9.10 h",
        margin=0.05,
        note="as long: a training step, within 5%",
    ),
    Claim(
        "voc.lr-ratio",
        "AdaX-W's best learning rate is ten times AdamW's (appendix, step sizes)",
        "lr-ratio",
        ADAXW,
        ADAMW,
        "1e-5 against 1e-6",
        study="tuning",
        margin=4.0,
        note="one seed; the factor of 4 was the step of an earlier plan of rates; those that were tried are half a "
        "decade apart, and one such step would allow 3.2 to 32",
    ),
)
