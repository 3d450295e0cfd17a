"""The paper's sections 2-4 as computations: problems, closed forms, theorems, and what held of each claim."""
