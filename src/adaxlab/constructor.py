"""The line of Python that makes an optimizer as a run had it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import adaxopt
from adaxlab import optimizers
from adaxopt.torch.optimizers import CLASSES


def line(name: str, options: Mapping[str, Any]) -> str:
    """A line that runs where `model` is known.

    >>> line("adaxw@slow", {"lr": 5e-3, "betas": [0.9, 0.0068], "weight_decay": 0.05})
    'import adaxopt; optimizer = adaxopt.AdaXW(model.parameters(), lr=0.005, betas=(0.9, 0.0068), weight_decay=0.05)'
    """
    kind = optimizers.base(name)
    first = {"lr": options["lr"]} if "lr" in options else {}
    given = {k: optimizers.from_data(k, v) for k, v in {**first, **options}.items()}
    words = "".join(f", {key}={value!r}" for key, value in given.items())
    torch = "import torch; " if "=torch." in words else ""
    place, _, attribute = kind.rpartition(":")
    if kind in CLASSES:
        public = CLASSES[kind].__name__
        call = f"{public}(" if public in adaxopt.__all__ else f'create("{kind}", '
        return f"{torch}import adaxopt; optimizer = adaxopt.{call}model.parameters(){words})"
    if len(optimizers.parts(kind)) > 1 or optimizers.is_factory(kind):
        built = f"optimizers.build({kind!r}, model.parameters(), {dict(given)!r}, model)"
        return f"{torch}from adaxlab import optimizers; optimizer = {built}"
    module = "torch.optim" if place == "torch" else Path(place).stem if place.endswith(".py") else place
    return f"{torch}from {module} import {attribute}; optimizer = {attribute}(model.parameters(){words})"
