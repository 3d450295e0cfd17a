"""The paper's sentences on VOC2012 that the CamVid stand-in can touch, and the rule for each: written before the runs.

The paper's IoU values are VOC2012's and a COCO-pretrained ResNet-101's; CamVid says nothing about them. What can be
looked at is which method ends above which, which trains faster, and what a run costs: at the paper's settings
(study camvid) and with equal tuning budgets (study tuning, ids that end in -tuned: comparisons of ours).

Seeds are 0, 1, 2; rows of one seed share the head's first weights and every crop. `claim.py` has the rules,
`measures.py` what is measured: here

    IoU          of the last evaluation on the test split, in percent; no evaluation is chosen
    early loss   training loss, averaged over the first three quarters; the last is left out, where all have settled
    step         time of a step, round by round in turn on a device of their own (benchmarks/voc.py)
    tuned lr     the lr that tuning chose, which has no seeds
"""

from __future__ import annotations

from dataclasses import replace

from adaxlab.claim import Claim, about, notes
from adaxlab.paper.voc import ADAMW, ADAXW, AMSGRADW, PAPER, SGDM

SECTION = "Section 5.1, transfer learning: VOC2012 segmentation (stand-in: CamVid)"
BEYOND = "Beyond the paper: CamVid at tuned learning rates"
SHORT_NOTE = "the paper's lr, in a tenth of its steps and with a head from scratch: see the same claim, tuned"


def _over(id: str, text: str, a: str, b: str) -> Claim:
    """IoU of one method above another's, as in the paper's table."""
    paper = " against ".join("{:.2f} +- {:.2f}".format(*PAPER[row]) for row in (a, b))
    return about("voc/camvid", SECTION, "better", "IoU", paper=paper)(id, text, a, b)


SENTENCES = (
    _over("adaxw-over-sgdm", "AdaX-W obtains a higher IoU than SGDM", ADAXW, SGDM),
    about("voc/camvid", SECTION, "better", "early loss")(
        "adaxw-faster-sgdm",
        "AdaX-W trains faster than SGDM",
        ADAXW,
        SGDM,
        note="faster: training loss over the first three quarters of the run",
    ),
    _over("adaxw-over-adamw", "AdamW does not reach an IoU comparable to AdaX-W's", ADAXW, ADAMW),
    _over("adaxw-over-amsgradw", "AMSGrad(W) does not reach an IoU comparable to AdaX-W's", ADAXW, AMSGRADW),
    _over("sgdm-over-adamw", "AdamW does not reach an IoU comparable to SGDM's", SGDM, ADAMW),
    _over("sgdm-over-amsgradw", "AMSGrad(W) does not reach an IoU comparable to SGDM's", SGDM, AMSGRADW),
    _over("adamw-over-amsgradw", "AMSGrad(W) ends below AdamW", ADAMW, AMSGRADW),
)
AT_PAPER = tuple(replace(claim, note=notes(SHORT_NOTE, claim.note)) for claim in SENTENCES)
TUNED = tuple(
    replace(
        claim,
        id=f"{claim.id}-tuned",
        text=f"{claim.text}, both tuned here",
        study="voc/tuning",
        where=BEYOND,
        ours=True,
        note=notes(claim.note, f"paper, at its own settings on VOC2012: {claim.says}" if claim.paper else ""),
    )
    for claim in SENTENCES
)
CLAIMS: tuple[Claim, ...] = (
    *AT_PAPER,
    *TUNED,
    about("voc/speed", SECTION, "ratio", "step", margin=0.05)(
        "runtime",
        "A run of AdaX-W takes about as long as one of AdamW (Table 6)",
        ADAXW,
        ADAMW,
        paper="8.89 h against 9.10 h",
        note="as long: a training step, within 5%",
    ),
    about("voc/tuning", SECTION, "paper_ratio", "tuned lr", margin=4.0, paper=(1e-5, 1e-6))(
        "lr-ratio",
        "AdaX-W's best learning rate is ten times AdamW's (appendix, step sizes)",
        ADAXW,
        ADAMW,
        note="one seed; the factor of 4 was the step of an earlier plan of rates; those that were tried are half a "
        "decade apart, and one such step would allow 3.2 to 32",
    ),
)
