"""The CIFAR-10 studies."""

from __future__ import annotations

from adaxlab.cifar.rules import CLAIMS
from adaxlab.paper.computation import Computation

__all__ = ["CLAIMS", "STUDIES", "TITLE"]

RUN = "adaxlab.cifar.studies"
TITLE = "CIFAR-10 (adax data get cifar10), a GPU"
STUDIES = (
    Computation("cifar10/table2", RUN, "table 2, fig. 1", "accuracy of the five, 5 seeds"),
    Computation("cifar10/tuning", RUN, "table 2", "five learning rates for each method"),
    Computation("cifar10/tuned", RUN, "table 2", "each method at its best lr, 5 seeds"),
    Computation("cifar10/trace", RUN, "fig. 3b", "mean of sqrt(v-hat) over training"),
    Computation("cifar10/trace-lr", RUN, "ours", "the same at equal learning rates"),
    Computation("cifar10/epsilon", RUN, "fig. 3c-d", "does eps matter"),
    Computation("cifar10/padax", RUN, "fig. 4", "Padax beside Padam"),
    Computation("cifar10/decay", RUN, "section 5.1", "L2 against decoupled decay, ResNet-18"),
    Computation("cifar10/lr", RUN, "appendix", "AdaX-W's learning rate"),
    Computation("cifar10/beta1", RUN, "appendix", "AdaX-W's b1"),
    Computation("cifar10/beta2", RUN, "appendix", "AdaX-W's b2"),
    Computation("cifar10/runtime", RUN, "appendix", "seconds of AdamW and of AdaX-W"),
    Computation("cifar10/zoo", RUN, "table 1", "every method of the table, a row each"),
)
