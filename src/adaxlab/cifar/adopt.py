"""Runs that another study has made already: the same optimizer, options, seed, recipe and data.

The sweeps have a row at the paper's own settings, which is a row of `table2`; runs of a seed share initial weights,
order and crops, so there is nothing to learn from running it again. An adopted line says whose it is (`same_run_as`).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from adaxlab.cifar.book import Study
from adaxlab.cifar.stack import Run
from adaxopt.zoo import METHODS


def whole(optimizer: str, options: Mapping[str, Any]) -> str:
    """An optimizer's settings with its defaults filled in, as text that can be compared.

    >>> whole("adaxw", {"lr": 5e-3}) == whole("adaxw", {"eps": 1e-12, "betas": (0.9, 1e-4)})
    True
    >>> whole("torch:AdamW", {}) == whole("torch:AdamW", {"amsgrad": True})
    False
    """
    if optimizer.startswith("torch:"):
        made = inspect.signature(getattr(torch.optim, optimizer.removeprefix("torch:"))).parameters
        defaults = {k: p.default for k, p in made.items() if p.default is not p.empty}
    else:
        defaults = dict(METHODS[optimizer].defaults)
    return json.dumps([optimizer, {**defaults, **options}], sort_keys=True, default=str)


def may_adopt(study: Study) -> bool:
    """Not where times or traces are wanted, nor for a part of the training set, which lines do not name."""
    return not (study.alone or study.trace or study.holdout)


def adopt(
    study: Study, runs: Sequence[Run], lines: Iterable[Mapping[str, Any]], images: int, precision: str
) -> list[dict[str, Any]]:
    """The lines of `runs` that can be had from other studies' `lines`."""
    if not may_adopt(study):
        return []
    recipe = json.dumps(asdict(study.recipe))
    known = {
        (whole(line["optimizer"], line["options"]), line["seed"]): line
        for line in lines
        if line.get("study", study.name) != study.name  # a folder may hold files of other kinds
        and json.dumps(line["recipe"]) == recipe
        and (line["images"], line["precision"]) == (images, precision)
        and "same_run_as" not in line
    }
    found = []
    for run in runs:
        line = known.get((whole(run.optimizer, run.options), run.seed))
        if line is not None:
            source = f"{line['study']}: {line['row']}"
            mine = {"study": study.name, "row": run.row, "options": dict(run.options), "same_run_as": source}
            found.append({k: v for k, v in {**line, **mine}.items() if k != "trace"})
    return found
