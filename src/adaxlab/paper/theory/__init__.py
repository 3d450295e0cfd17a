"""The paper's formulas, theorems and synthetic problems, computed."""

from adaxlab.paper.theory.studies import STUDIES, TITLE

__all__ = ["STUDIES", "TITLE"]
