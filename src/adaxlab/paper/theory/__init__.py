"""The paper's formulas, theorems and synthetic problems, computed. Its studies need no data set."""

from __future__ import annotations

from adaxlab.paper.catalogue import Computation

CLI = "adaxlab.paper.theory.cli"
TITLE = "No data, a CPU"
STUDIES = (
    Computation("theory", CLI, "sections 2-4", "the formulas and theorems, computed"),
    Computation("reddi", CLI, "problem (3)", "does Adam converge to a wrong point"),
    Computation("synthetic", CLI, "problem (4)", "updates after gradients have faded"),
    Computation("first-lr", "adaxlab.paper.first_lr", "ours", "the lr to try first on a new task"),
)
