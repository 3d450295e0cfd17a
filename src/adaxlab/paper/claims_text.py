"""The fixed text of docs/claims.md and docs/claims-*.md: what a verdict means, titles, and what was changed later."""

from __future__ import annotations

from typing import NamedTuple

CHANGED = (
    "E3 was inconclusive twice when it was judged by run time, and is now judged by counting operations;",
    "the lr of the study of the rate was changed from 0.05 to 0.5 after a reduced run did not satisfy the rule (at "
    "0.05 and 1e5 steps the slope was -0.473, also steeper than claimed);",
    "the lr of the rare-gradient problem was changed to 0.5 after a trial at 0.1, in which AdaX had not yet reached "
    "the right side on most seeds;",
    "a drift reversal was removed from the regret problems, because it made regret negative.",
)
"""What was changed after first results were known, in sections 2 to 4."""

RULES = """\
The rules of computed claims are in the code that computes them. They were therefore fixed before the recorded run, but
not before every prototype:
"""

MADE = "<!-- Made from records/ by `adax claims`; edits here are lost. -->"


HE = (
    "Ids that end in `-he` refer to SGDM with the weight decay of the paper's text (1e-4), other ids to SGDM with that "
    "of the released code (5e-4). AMSGrad(W) is AMSGrad with decoupled weight decay (`amsgradw`)."
)
"""How ids and names of CIFAR-10 are read."""


class Family(NamedTuple):
    """The fixed text of the page of a family."""

    title: str
    judged_by: str
    """In the tables that count verdicts."""
    more: str

    def begin(self) -> str:
        return (
            "Each entry has the claim in our words, the rule by which it was tested, and the result. [What a verdict "
            "means](claims.md#what-a-verdict-means), [all claims in one list](claims.md#list-of-claims), [open "
            f"claims](claims.md#open-claims).\n\n{self.more}"
        )


FAMILIES = {
    "theory": Family(
        "Claims on the theory",
        "theory, computed",
        "Theorems and lemmas are numbered as in the paper's LaTeX source. No data set is needed: `adax reproduce "
        "reddi`, `adax reproduce synthetic` and `adax reproduce theory` compute this page in about a minute on one "
        "core. [The errata](claims.md#errata) say what this project does about each error of the paper.",
    ),
    "cifar10": Family(
        "Claims on CIFAR-10",
        "the paper's own data (CIFAR-10)",
        f"{HE} Settings and results of every study are in [CIFAR-10](cifar10.md).",
    ),
    "gpt": Family(
        "Claims on the transformer",
        "a transformer of this project (enwik8)",
        "The paper has no transformer: these claims are ours. Settings and results of every study are in [A small "
        "transformer](gpt.md) and [The memory study](memory-study.md).",
    ),
    "imagenet": Family(
        "Claims on ImageNet",
        "stand-ins",
        "The data are Tiny-ImageNet, a [stand-in](reproduction.md#scope). Settings and results of every study are in "
        "[ImageNet](imagenet.md).",
    ),
    "language": Family(
        "Claims on language",
        "stand-ins",
        "The data are Penn Treebank and enwik8, [stand-ins](reproduction.md#scope) for One Billion Word. Settings and "
        "results of every study are in [Language](language.md).",
    ),
    "voc": Family(
        "Claims on segmentation",
        "stand-ins",
        "The data are CamVid, a [stand-in](reproduction.md#scope) for PASCAL VOC2012. Settings and results of every "
        "study are in [Segmentation](voc.md).",
    ),
}
"""What `claim.family` returns, each with its page."""

BEGIN = """\
This page lists every claim of the paper that was checked, and comparisons of our own, with its verdict. The id of a
claim links to its entry: the statement, the rule by which it was tested, and the result. [The report](reproduction.md)
summarises the results and defines [stand-ins](reproduction.md#scope).
"""

MEANING = """\
## What a verdict means

A claim on runs is a statement about a mean over seeds, such as "a - b is above 0". It is tested by a two-sided t test,
paired by seed where two rows are compared; the p of the test, adjusted by Holm's method, decides.

| word | meaning |
|---|---|
| *supported* | the adjusted p is below 0.05, and the mean satisfies the statement |
| *contradicted* | the adjusted p is below 0.05, and the mean does not satisfy the statement |
| *inconclusive*, *no significant difference* | neither: the seeds do not decide. It does not mean that two \
methods are equal; only a supported claim "within a margin" shows that they are close. \
[Open claims](#open-claims) lists the n that would probably decide |
| *not run* | there are no runs yet |
| *provisional* | the verdict is from 3 or 4 seeds; fewer than 3 give no verdict |
| *superseded* | another claim makes the same comparison on new seeds, and is the one to read |
| *post hoc* | the rule was written after the runs |
| *n* | the number of seeds; in computed claims the number of cases, in claims about speed the number of rounds |

**Holm's method** corrects for the number of tests. With 8 tests at 5% each, the chance of at least one wrong verdict
is far above 5%; after the adjustment it is below 5% for all claims of a study together. The smallest of 8 p values has
to be below 0.05/8, the next one below 0.05/7, and so on. Claims written before the runs are adjusted among themselves,
post hoc claims among all claims of the study. A claim that was judged again on new seeds still counts among the claims
of the study that tested it first (on Penn Treebank: `ptb-gap`). A claim that was assigned to a study after its runs
counts there, as post hoc.

**A claim can be inconclusive although its interval excludes 0**, because the intervals shown are plain 95% intervals,
without the adjustment. The line *Test* of an entry gives the adjusted p.

**Values of the paper** (mean ± margin): *supported* if our plain interval overlaps the paper's, *contradicted* if it
does not and the adjusted p is below 0.05, otherwise *inconclusive*. A supported value is one that our runs do not
exclude.

**Computed claims** ([the claims on the theory](claims-theory.md)) are judged on the cases that were computed.
*Supported* means that no case violates the statement; this is not a proof. *Contradicted* means that a case violates
it.

**Before or after the runs.** Rules were written before the runs that judge them, except for claims marked *post hoc*.
If an entry states that the commit of its runs was not recorded, or that they had uncommitted changes, the records do
not prove this. For computed claims, see [the changes after first
results](claims-theory.md#changes-after-first-results).
"""

ERRATA = """\
Errors in the paper or in the code released with it, and what this project does instead. Every contradicted computed
claim is listed here. Contradicted results of the paper's experiments are not errata; they are in
[the list of claims](#list-of-claims)."""

FIGURES = {
    "gain": "The second moments of the methods differ in one number per step, the gain k_t (S4.3, D1).",
    "figure-3a": "Figure 3(a): updates on problem (4) fade; all methods but SGD have passed the optimum (F5.1, F5.2).",
    "reddi": "Problem (3) and rare large gradients: where Adam moves in the wrong direction (S2.6 to S4.8).",
    "lemma-4-1": "Lemma 4.1 needs its schedule: with the constant steps of the experiments it is false (L4.1, L4.1c).",
    "regret-bound": "The regret bound holds, but grows as fast as the trivial bound (T4.1, T4.1o).",
    "rate": "The rate of Theorem 4.2 (T4.2, T4.2s).",
}
"""docs/images/theory-NAME.svg, drawn from records/theory, and what it shows."""
