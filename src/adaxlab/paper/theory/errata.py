"""Errata of the paper and of its released code, and what this project does about each."""

from __future__ import annotations

from typing import Any


def _row(number: int, paper: str, here: str, *shown_by: str) -> dict[str, Any]:
    return {"number": number, "paper": paper, "here": here, "shown_by": list(shown_by)}


ERRATA = [
    _row(1, "Algorithm 3 adds alpha*lambda*x.", "Weight decay subtracts, as the released code does.", "E1"),
    _row(
        2,
        "eps is added before the division by the correction.",
        "Both placements; the released one is the default: eps_t is 100 eps at the first step and falls towards 0.",
        "E2",
    ),
    _row(
        3,
        "A smaller b2 reduces the computational cost.",
        "It does not; it moves the step at which the raw recursion overflows.",
        "E3",
    ),
    _row(4, "The text has 3 runs, the table 5.", "Every number states its own n."),
    _row(
        5,
        "Table 1's NosAdam is not NosAdam's.",
        "NosAdam's own formula; AdaX is a special case of it.",
        "S2.2",
        "D2",
    ),
    _row(
        6,
        "Problem (4) asks for C > 1 and is run with C = 1e-3; 'local minimum' of convex functions.",
        "Both are noted, the experiment's values are used.",
        "S3.1",
    ),
    _row(
        7,
        "Lemma 4.1 is stated without its schedule.",
        "It holds for alpha/sqrt(t), not for the constant steps of the experiments.",
        "L4.1",
        "L4.1c",
    ),
    _row(
        8,
        "Theorem 3.1 leaves out eps; Theorem 3.2 has its quantifiers in the wrong order.",
        "eps = 0; for every x0 and alpha there is a lambda.",
        "T3.1e",
        "T3.2",
        "T3.2c",
    ),
    _row(
        9,
        "The regret theorem is said to be about Algorithm 2.",
        "It is about b2_t = b2/t with another correction, whose v-hat is biased; both are run.",
        "T4.1b",
    ),
    _row(
        10,
        "The stationary-point proof uses v-hat_t >= v-hat_1.",
        "What holds is v-hat_t >= v-hat_1 b2/(1+b2).",
        "T4.2c",
        "T4.2d",
    ),
    _row(
        11,
        "The One Billion Word experiment has sparse gradients.",
        "The released AdaX raises an error on them; here each row keeps its own step count.",
    ),
    _row(
        12,
        "The released AdaX with L2 changes the gradient; its CIFAR script builds AdaX-W whatever is selected.",
        "Gradients are never changed; both forms exist.",
    ),
    _row(
        13,
        "b2 = 1e-4 for every task.",
        "b2*T determines the behaviour: 2 on VOC, 7 on CIFAR-10, 50 on ImageNet; every study states its b2*T.",
        "E13",
    ),
    _row(
        14,
        "The regret bound is said to give R_T = o(T).",
        "Its last term grows like T unless the gradients themselves vanish; measured regret does grow like sqrt(T) "
        "or slower.",
        "T4.1o",
        "T4.1r",
    ),
    _row(
        15,
        "Lemma 7.3 has D^2/(2 alpha_T).",
        "It holds with D^2/alpha_T; as stated it fails by a factor of 2 at T = 1. Theorem 4.1 is not affected.",
        "L7.3",
        "L7.3c",
    ),
    _row(
        16,
        "Earlier variants, NosAdam among them, are said to emphasise recent gradients and to share Adam's problem.",
        "True of Adam and AdaShift. NosAdam's weights prefer the past, and its updates fade with the gradient.",
        "S2.3",
        "S3.8",
        "S3.7",
    ),
    _row(
        17,
        "v-hat is said to become stable and large.",
        "It becomes stable. It is as large as the early squares, so it is too small where gradients grow later.",
        "S4.5",
        "S4.6",
    ),
    _row(
        18,
        "With the values of Figure 3(a), SGDM and AdaX are said to stop at the optimum.",
        "Both pass it, AdaX before Adam; only SGD without momentum does not.",
        "F5.1",
    ),
    _row(
        19,
        "Adam's failure on problem (3) is stated without a restriction on b2.",
        "At b2 = .9, .99 and .999 Adam finds the optimum; at such a b2 the failure needs rarer large gradients.",
        "S2.7",
        "S2.8",
    ),
]
