"""The fixed text of docs/claims.md: what a verdict means, and what was changed after first results were known."""

from __future__ import annotations

CHANGED = (
    "E3 was inconclusive twice by clock time, and is now judged by counting operations;",
    "the rate's lr went from 0.05 to 0.5 after a reduced run missed its rule (at 0.05 and 1e5 steps the slope was "
    "-0.473, steeper than claimed too);",
    "the rare-gradient problem runs at lr 0.5 after a trial at 0.1, where AdaX had not yet reached the right side on "
    "most seeds;",
    "a drift reversal was removed from the regret problems, because it made regret negative;",
    "the paths drawn on the landscape use other rates than the tuned ones, whose paths were not legible.",
)
"""What was changed after first results were known, in sections 2 to 4."""

BEGIN = """\
This page lists every claim of the paper that was checked, and comparisons of our own: what the paper says (in our
words), the rule by which it was tested, and the result. [The report](reproduction.md) has the summary, and defines
[stand-ins](reproduction.md#scope). AMSGrad(W) is AMSGrad with decoupled weight decay (`amsgradw`). On CIFAR-10, ids
that end in `-he` are about SGDM at the weight decay of the paper's text (1e-4), others at that of the released code
(5e-4).
"""

MEANING = """\
## What a verdict means

A rule on runs is a statement about a mean over seeds, such as "a - b is above 0". It is tested by a two-sided t test,
paired by seed where two rows are compared. The p values of all claims of one study are then adjusted by Holm's method,
so that the chance of any wrong verdict in a study stays below 5%: claims written before the runs among themselves, post
hoc claims among all. The adjusted p decides:

- *supported*: the adjusted p is below 0.05, and the mean is on the statement's side;
- *contradicted*: the adjusted p is below 0.05, and the mean is on the other side;
- *inconclusive*: anything else. For a comparison of two methods, the pages also say *no significant difference*. It
  does not mean that the methods are equal: the seeds do not decide. That two methods are close is shown only by a
  supported claim "within a margin". [Open claims](#open-claims) has the n that would decide, and says how likely;
- *not run*: there are no runs yet.

**An interval that excludes 0 can be inconclusive.** Intervals are plain 95% intervals, without the adjustment. In a
study of 8 claims the smallest p has to be below 0.05/8. An interval that excludes 0 only says that the plain p is below
0.05. The line *Test* of an entry has the adjusted p.

**Values of the paper** (mean ± margin): *supported* if our plain interval meets the paper's, *contradicted* if it does
not and the adjusted p is below 0.05, else *inconclusive*. A supported value is one that our runs do not exclude.

**Computed claims** (sections 2 to 4) are judged on the cases that were computed. *Supported* means that no case
violates the statement; it is no proof. *Contradicted* means that a case does.

**n** counts seeds; in computed claims it counts the cases, and in claims about speed the rounds. Fewer than 3 seeds
decide nothing; a verdict from fewer than 5 is marked *provisional*.

**Before or after the runs.** Rules were written before the runs that judge them, except for claims marked *post hoc*;
where an entry says that the commit of its runs was not recorded, or that they had uncommitted changes, the records do
not prove it. Computed claims have their rules in the code that computes them, so these were fixed before the recorded
run, though not before every prototype:
"""

END = """\
Theorems and lemmas are numbered as in the paper's LaTeX source. Sections 2 to 4 need no data set: `adax reproduce
reddi`, `adax reproduce synthetic` and `adax reproduce theory` compute their part of this page in about a minute on one
core; see the [figures](#figures).
"""

ERRATA = """\
Errors in the paper or in the code released with it, and what this project does instead. Every contradicted computed
claim is here. Results of the paper's experiments that are contradicted are no errata; they are in
[the list](#list-of-claims)."""

FIGURES = {
    "gain": "The second moments of the methods differ in one number per step, the gain k_t (S4.3, D1).",
    "figure-3a": "Figure 3(a): updates on problem (4) fade; all methods but SGD have passed the optimum (F5.1, F5.2).",
    "reddi": "Problem (3) and rare large gradients: where Adam moves in the wrong direction (S2.6 to S4.8).",
    "lemma-4-1": "Lemma 4.1 needs its schedule: with the constant steps of the experiments it is false (L4.1, L4.1c).",
    "regret-bound": "The regret bound holds, but grows as fast as the trivial bound (T4.1, T4.1o).",
    "rate": "The rate of Theorem 4.2 (T4.2, T4.2s).",
    "landscape": "Three methods on a surface with three minima.",
}
"""docs/images/theory-NAME.svg, drawn from records/theory, and what it shows."""
