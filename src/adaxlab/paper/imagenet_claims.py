"""The paper's statements on ImageNet that Tiny-ImageNet can test, with rules written before the runs.

No epoch is selected by its accuracy. Rows of one seed share initial weights, order and crops. The paper's accuracies
(69.90 etc.) are for another data set and are not claims here; the claims are about the order of the methods and their
speed. `claim.py` has the rules, `measures.py` the measures:

    top-1            on the validation images after the last epoch
    last training    training accuracy (under augmentation) of the last epoch
    early training   training accuracy, averaged over the first 30% of the epochs (before the first drop of lr)
    late gain        top-1 minus the accuracy after 70% of the epochs (10% after the second drop of lr)
    training step    time of a training step, methods in alternating rounds on an otherwise idle device

A failed run has a loss that is not finite, or an accuracy of 2% or less (random guessing gives 0.5%).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adaxlab.claim import Claim, about, notes

T2 = "Section 5.1, ImageNet (stand-in: Tiny-ImageNet, ResNet-18)"
RUNTIME = "Appendix, runtime on ImageNet (stand-in: Tiny-ImageNet)"
T50 = "Appendix, ResNet-50 on ImageNet (stand-in: Tiny-ImageNet)"
SHORT = "b2 = 1e-4, so b2*T = 0.78"
LONG = "b2*T = 50, as in the paper's 500,000 steps, instead of b2 = 1e-4"
EACH_ITS_OWN = "each method at the best of its learning rates (study tuning)"
MUCH = "much: by more than 1 point"
BEYOND = "Beyond the paper: Tiny-ImageNet"
PAPER_LR = (
    "at the paper's lr; larger learning rates are better for every method here (study tuning); imagenet.tuned.* is the "
    "same comparison with equal tuning"
)


def _ours(claims: tuple[Claim, ...], what: str) -> tuple[Claim, ...]:
    """Return the paper's comparisons at settings of our own; the paper's result is in the note."""
    return tuple(
        replace(
            claim,
            where=f"{BEYOND}, {what}",
            ours=True,
            note=notes(claim.note, f"paper, at its own settings: {claim.says}" if claim.paper else ""),
        )
        for claim in claims
    )


def _at_paper_lr(claim: Claim) -> Claim:
    """Return the claim with a note on the paper's lr if it is about the study `tiny`."""
    return replace(claim, note=notes(claim.note, PAPER_LR)) if claim.study == "imagenet/tiny" else claim


def _on(study: str, where: str = T2) -> tuple[Callable[..., Claim], ...]:
    """Return functions that create "better" claims on a study, for final, early training and last training accuracy."""
    measures = ("top-1", "early training", "last training")
    return tuple(about(f"imagenet/{study}", where, "better", measure) for measure in measures)


def _order(study: str, prefix: str, adax: str, note: str) -> tuple[Claim, ...]:
    """Return the comparisons of AdaX-W with other methods in Table 2."""
    top, early, _ = _on(study)
    no_loss = about(f"imagenet/{study}", T2, "not_worse", "top-1", margin=0.5, paper="-0.03 on ImageNet")
    return (
        *(
            top(
                f"{prefix}adaxw-over-{row}",
                f"AdaX-W has a higher final accuracy than {name}",
                adax,
                row,
                paper=paper,
                note=note,
            )
            for row, name, paper in (
                ("adamw", "AdamW", "+2.95 on ImageNet"),
                ("amsgradw", "AMSGrad(W)", "+3.23 on ImageNet"),
            )
        ),
        no_loss(
            f"{prefix}adaxw-no-loss",
            "AdaX-W loses no test accuracy compared with SGDM",
            adax,
            "sgdm",
            note=notes(note, "no loss: not more than 0.5 points"),
        ),
        early(f"{prefix}adaxw-faster-sgdm", "AdaX-W converges faster than SGDM", adax, "sgdm", note=note),
    )


top, early, last = _on("tiny")
top50, early50, last50 = _on("tiny-resnet50", T50)

SENTENCES: tuple[Claim, ...] = (
    *_order("tiny", "", "adaxw", SHORT),
    *_ours(_order("tiny", "b2T50.", "adaxw-b2T50", LONG), "ResNet-18, b2*T = 50"),
    *(
        top(f"{a}-over-{b}", text, a, b, paper=f"{paper} on ImageNet")
        for text, a, b, paper in (
            ("AdamW's final accuracy is below SGDM's", "sgdm", "adamw", "+2.98"),
            ("AMSGrad performs even worse than AdamW", "adamw", "amsgradw", "+0.28"),
        )
    ),
    early("adamw-fast-start", "AdamW is fast at the beginning", "adamw", "sgdm", note="faster than SGDM"),
    about("imagenet/tiny", T2, "below", "late gain", margin=0.5)(
        "adamw-stagnates",
        "AdamW's test accuracy stagnates after the second decrease of lr",
        "adamw",
        note="stagnates: gains less than 0.5 points after 70% of the run",
    ),
    last(
        "amsgrad-trains-higher",
        "AMSGrad has a much higher training accuracy than SGDM",
        "amsgradw",
        "sgdm",
        margin=1.0,
        note=MUCH,
    ),
    about("imagenet/speed", RUNTIME, "ratio", "training step", margin=0.05)(
        "runtime",
        "AdaX-W takes about as long as AdamW",
        "adaxw",
        "adamw",
        paper="50.74 h against 50.10 h",
        note="within 5%",
    ),
    *_ours(_order("tuned", "tuned.", "adaxw", EACH_ITS_OWN), "ResNet-18, tuned equally"),
    top50(
        "r50.sgdm-over-adamw",
        "AdamW's final accuracy is much lower than SGDM's",
        "sgdm",
        "adamw",
        margin=1.0,
        paper="+8.85 on ImageNet",
        note=MUCH,
    ),
    about("imagenet/tiny-resnet50", T50, "similar", "top-1", margin=1.0)(
        "r50.amsgrad-no-gain",
        "AMSGrad does not improve AdamW by a significant margin",
        "amsgradw",
        "adamw",
        paper="+0.49 on ImageNet",
        note="within 1 point",
    ),
    top50(
        "r50.adaxw-below-sgdm",
        "AdaX-W does not catch up with SGDM at the end",
        "sgdm",
        "adaxw",
        paper="+1.54 on ImageNet",
        note=SHORT,
    ),
    top50(
        "r50.adaxw-over-adamw",
        "AdaX-W is much better than AdamW",
        "adaxw",
        "adamw",
        margin=1.0,
        paper="+7.31 on ImageNet",
        note=f"{SHORT}; {MUCH}",
    ),
    early50("r50.adaxw-fast", "AdaX-W converges fast", "adaxw", "sgdm", note=f"{SHORT}; faster than SGDM"),
    last50(
        "r50.adaxw-trains-higher",
        "AdaX-W has a much higher training accuracy",
        "adaxw",
        "adamw",
        margin=1.0,
        note=f"{SHORT}; compared with AdamW, to which the sentence refers; {MUCH}",
    ),
)
RESNET50 = tuple(
    replace(
        claim,
        id=claim.id.replace("r50.", "r50.tuned."),
        study="imagenet/r50-tuned",
        note=notes(EACH_ITS_OWN, claim.note),
    )
    for claim in SENTENCES
    if claim.study == "imagenet/tiny-resnet50"
)
POST_HOC = (
    *_ours(
        _order("tuned-new", "tuned.b2T50.", "adaxw-b2T50", f"{EACH_ITS_OWN}; {LONG}"),
        "ResNet-18, tuned equally, b2*T = 50",
    ),
    *_ours(RESNET50, "ResNet-50, tuned equally"),
)
RETESTED = {"imagenet/tiny": "imagenet/tiny-new", "imagenet/tuned": "imagenet/tuned-new"}
"""Every claim of a study is judged again, on all of its rows and five new seeds."""
CLAIMS = tuple(
    replace(_at_paper_lr(claim), retest=RETESTED.get(claim.study, "")) for claim in (*SENTENCES, *POST_HOC)
)
