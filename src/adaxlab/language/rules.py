"""The paper's sentences on language that the stand-ins can touch, with rules written before the runs.

Losses are nats per word; a difference of d is a ratio of perplexities of e^d. Rows of one seed share weights and text.
The paper's own perplexities are of another text and are no claims here. `claim.py` has the rules, `measures.py` what is
measured: here

    test loss     on the test split after the last epoch
    last loss     training loss of the last epoch
    slow start    training loss of the first epoch, the other way round: a slower start is a larger one
"""

from __future__ import annotations

from adaxlab.claim import Claim, about

TEXTS = {"ptb": "Penn Treebank", "enwik8": "words of enwik8"}
PPL = "35.22 against 36.90: 0.047 nats"


def _claims(text: str) -> tuple[Claim, ...]:
    """The sentences, judged on one text."""
    where, study = f"Section 5.1, language (stand-in: {TEXTS[text]})", f"language/{text}"
    test = about(study, where, "better", "test loss")
    all_three = about(study, where, "better", ("slow start", "last loss", "test loss"))
    below = "AdaX ends below Adam's perplexity"
    return (
        test(f"{text}.adax-over-adam", below, "adax", "adam", paper=PPL, note="b2*T = 35"),
        test(f"{text}.adax-over-adam.b2T3", below, "adax@b2T=3", "adam", paper=PPL, note="b2*T = 3"),
        all_three(
            f"{text}.slow-start",
            "AdaX starts a little slower and soon surpasses Adam, in training and in validation",
            "adax",
            "adam",
            note="b2*T = 35; all three must hold",
        ),
        test(
            f"{text}.amsgrad-poor",
            "AMSGrad performs rather poorly",
            "adam",
            "amsgrad",
            margin=0.1,
            paper="61.66 against 36.90: 0.51 nats",
            note="poorly: more than 0.1 nats worse than Adam",
        ),
    )


CLAIMS = tuple(claim for text in TEXTS for claim in _claims(text))
