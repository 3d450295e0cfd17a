"""The sentences on ImageNet that the stand-in can touch, and the rule for each: written before the runs.

Accuracies are top-1 in percent; `final` is the last epoch's on the validation pictures, and no epoch is chosen by its
accuracy. Rows of one seed share initial weights, order and crops, so differences are taken seed by seed and judged by
Student's paired 95% interval. The paper's own numbers (69.90 and so on) are of another data set and are no claims
here: only the order of the methods and their speed are.

    measure     final       top-1 on the validation pictures after the last epoch
                trained     training accuracy (under augmentation) of the last epoch
                early       training accuracy, averaged over the first 30% of the epochs (before the first drop of lr)
                late        final, less the accuracy when 70% of the epochs are over (10% after the second drop of lr)
                step        time of a training step, methods in turn on a device that nothing else uses
    rule        above m     a - b: held if the whole interval is above m, not held if it is below m
                within m    a - b: held if the whole interval is within +-m, not held if it is outside
                no-loss m   a - b: held if the whole interval is above -m, not held if it is below -m
                below m     a alone: held if the whole interval is below m, not held if it is above m
                ratio m     a / b: held if the whole interval is within 1 +- m, not held if it is outside

Fewer than 3 seeds decide nothing. A failed run (loss no number, or an accuracy of 2% or less; chance is 0.5%) cannot
hold a claim of its method.

What changed after this was first written: the measure `seconds` (time of a run) became `step` before any run, because
the runs of a study may share a device; tuning got its sixth, largest rate after the first five were seen, when three
methods were best at the upper edge, and after four runs of `tuned`: it changed no choice. No rule and no margin was
changed after data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from adaxlab.claims import OURS, and_the_papers, notes

FLOOR = 2.0
"""A final accuracy that is no more than this is a run that failed."""
EARLY, LATER = 0.3, 0.7
"""Shares of the run: before the first drop of lr, and well after the second."""
Measure = Literal["final", "trained", "early", "late", "step"]
Rule = Literal["above", "within", "no-loss", "below", "ratio"]


def failed(record: Mapping[str, Any]) -> bool:
    """Loss no number at some epoch, or an accuracy that is little more than chance."""
    return None in record["curve"]["train_loss"] or record["test_accuracy"] <= FLOOR


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or a comparison of ours: `paper="(ours)"`), the study that judges it and the rule."""

    id: str
    where: str
    text: str
    study: str
    measure: Measure
    rule: Rule
    a: str
    b: str = ""
    margin: float = 0.0
    paper: str = ""
    note: str = ""


T2 = "Section 5.1, ImageNet (stand-in: Tiny-ImageNet, ResNet-18)"
T50 = "Appendix, ResNet-50 on ImageNet (stand-in: Tiny-ImageNet)"
SHORT = "b2 = 1e-4, so b2*T = 0.78"
LONG = "b2*T = 50, as in the paper's 500,000 steps, instead of b2 = 1e-4"
TUNED = "each method at the best of its learning rates (study tuning)"
BEYOND = "Beyond the paper: Tiny-ImageNet, ResNet-18"
PAPER_LR = (
    "the paper's lr: larger rates suit every method better here (study tuning), see imagenet.tuned.* for the same at "
    "equal tuning"
)


def _ours(claims: tuple[Claim, ...], what: str) -> tuple[Claim, ...]:
    """The paper's comparisons at settings that it does not have: ours, with its number in the note."""
    return tuple(
        replace(
            claim,
            where=f"{BEYOND}, {what}",
            paper=OURS,
            note=and_the_papers(claim.note, "paper, at its own settings", claim.paper),
        )
        for claim in claims
    )


def _at_paper_lr(claim: Claim) -> Claim:
    """With the note on the paper's lr, where an accuracy of the study `tiny` is judged."""
    about = claim.study == "tiny" and claim.measure != "step"
    return replace(claim, note=notes(claim.note, PAPER_LR)) if about else claim


def _order(study: str, prefix: str, adax: str, note: str) -> tuple[Claim, ...]:
    """The comparisons of final accuracies in Table 2 that AdaX-W is part of."""
    return (
        Claim(
            f"{prefix}.adaxw-over-adamw",
            T2,
            "AdaX-W ends above AdamW",
            study,
            "final",
            "above",
            adax,
            "adamw",
            paper="+2.95 on ImageNet",
            note=note,
        ),
        Claim(
            f"{prefix}.adaxw-over-amsgradw",
            T2,
            "AdaX-W ends above AMSGrad(W)",
            study,
            "final",
            "above",
            adax,
            "amsgradw",
            paper="+3.23 on ImageNet",
            note=note,
        ),
        Claim(
            f"{prefix}.adaxw-no-loss",
            T2,
            "AdaX-W loses no test accuracy against SGDM",
            study,
            "final",
            "no-loss",
            adax,
            "sgdm",
            margin=0.5,
            paper="-0.03 on ImageNet",
            note=notes(note, "no loss: not more than 0.5 points"),
        ),
        Claim(
            f"{prefix}.adaxw-faster-sgdm",
            T2,
            "AdaX-W converges faster than SGDM",
            study,
            "early",
            "above",
            adax,
            "sgdm",
            paper="no number in the text",
            note=note,
        ),
    )


SENTENCES: tuple[Claim, ...] = (
    *_order("tiny", "imagenet", "adaxw", SHORT),
    *_ours(_order("tiny", "imagenet.b2T50", "adaxw-b2T50", LONG), "b2*T = 50"),
    Claim(
        "imagenet.sgdm-over-adamw",
        T2,
        "AdamW's final accuracy is below SGDM's",
        "tiny",
        "final",
        "above",
        "sgdm",
        "adamw",
        paper="+2.98 on ImageNet",
    ),
    Claim(
        "imagenet.adamw-over-amsgradw",
        T2,
        "AMSGrad performs even worse than AdamW",
        "tiny",
        "final",
        "above",
        "adamw",
        "amsgradw",
        paper="+0.28 on ImageNet",
    ),
    Claim(
        "imagenet.adamw-fast-start",
        T2,
        "AdamW is fast at the beginning",
        "tiny",
        "early",
        "above",
        "adamw",
        "sgdm",
        paper="no number in the text",
        note="faster than SGDM",
    ),
    Claim(
        "imagenet.adamw-stagnates",
        T2,
        "AdamW's test accuracy stagnates after the second decrease of lr",
        "tiny",
        "late",
        "below",
        "adamw",
        margin=0.5,
        paper="no number in the text",
        note="stagnates: gains less than 0.5 points after 70% of the run",
    ),
    Claim(
        "imagenet.amsgrad-trains-higher",
        T2,
        "AMSGrad has a much higher training accuracy than SGDM",
        "tiny",
        "trained",
        "above",
        "amsgradw",
        "sgdm",
        margin=1.0,
        paper="no number in the text",
        note="much: by more than 1 point",
    ),
    Claim(
        "imagenet.runtime",
        "Appendix, runtime on ImageNet (stand-in: Tiny-ImageNet)",
        "AdaX-W takes about as long as AdamW",
        "tiny",
        "step",
        "ratio",
        "adaxw",
        "adamw",
        margin=0.05,
        paper="50.74 h against 50.10 h",
        note="within 5%",
    ),
    *_ours(_order("tuned", "imagenet.tuned", "adaxw", TUNED), "tuned alike"),
    Claim(
        "imagenet.r50.sgdm-over-adamw",
        T50,
        "AdamW's final accuracy is much lower than SGDM's",
        "tiny-resnet50",
        "final",
        "above",
        "sgdm",
        "adamw",
        margin=1.0,
        paper="+8.85 on ImageNet",
        note="much: by more than 1 point",
    ),
    Claim(
        "imagenet.r50.amsgrad-no-gain",
        T50,
        "AMSGrad does not improve AdamW by a significant margin",
        "tiny-resnet50",
        "final",
        "within",
        "amsgradw",
        "adamw",
        margin=1.0,
        paper="+0.49 on ImageNet",
        note="within 1 point",
    ),
    Claim(
        "imagenet.r50.adaxw-below-sgdm",
        T50,
        "AdaX-W does not catch up with SGDM at the end",
        "tiny-resnet50",
        "final",
        "above",
        "sgdm",
        "adaxw",
        paper="+1.54 on ImageNet",
        note=SHORT,
    ),
    Claim(
        "imagenet.r50.adaxw-over-adamw",
        T50,
        "AdaX-W is much better than AdamW",
        "tiny-resnet50",
        "final",
        "above",
        "adaxw",
        "adamw",
        margin=1.0,
        paper="+7.31 on ImageNet",
        note=f"{SHORT}; much: by more than 1 point",
    ),
    Claim(
        "imagenet.r50.adaxw-fast",
        T50,
        "AdaX-W converges fast",
        "tiny-resnet50",
        "early",
        "above",
        "adaxw",
        "sgdm",
        paper="no number in the text",
        note=f"{SHORT}; faster than SGDM",
    ),
    Claim(
        "imagenet.r50.adaxw-trains-higher",
        T50,
        "AdaX-W has a much higher training accuracy",
        "tiny-resnet50",
        "trained",
        "above",
        "adaxw",
        "adamw",
        margin=1.0,
        paper="no number in the text",
        note=f"{SHORT}; than AdamW, which the sentence is about; much: by more than 1 point",
    ),
)
CLAIMS = tuple(_at_paper_lr(claim) for claim in SENTENCES)
