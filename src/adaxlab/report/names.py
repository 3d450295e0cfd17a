"""The method and the title of a label: `torch:AdamW@amsgrad` is the method amsgradw, with the title AMSGrad(W).

A label is an optimizer as on the command line, with the settings that distinguish variants: `adaxw@slow, lr=0.01`.
Records, tables and switches use labels; the legends of image files use titles.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from adaxlab.optimizers import base
from adaxopt.zoo import METHODS

TITLES = {name: row.title for name, row in METHODS.items()}
TORCH = {
    "torch:SGD": "sgdm",
    "torch:Adagrad": "adagrad",
    "torch:RMSprop": "rmsprop",
    "torch:Adam": "adam",
    "torch:AdamW": "adamw",
    "torch:Adam@amsgrad": "amsgrad",
    "torch:AdamW@amsgrad": "amsgradw",
}
"""The names in the zoo of torch's optimizers."""
STATES = {"None": "float32 state", "bfloat16": "bf16 state", "uint8": "8-bit state"}
"""Titles of the values of `state_dtype`."""


def parts(label: str) -> tuple[str, str]:
    """The method of a label, by its name in the zoo if it has one, and the rest of the label.

    >>> parts("torch:AdamW@amsgrad"), parts("adaxw@slow, lr=0.01"), parts("torch:SGD")
    (('amsgradw', ''), ('adaxw', 'slow, lr=0.01'), ('sgdm', ''))
    """
    head, _, settings = (word.strip() for word in label.partition(","))
    if head in TORCH:
        return TORCH[head], settings
    name = base(head)
    second = head[len(name) + 1 :]
    return TORCH.get(name, name), ", ".join(word for word in (second, settings) if word)


def title(label: str, options: Mapping[str, Any] | None = None) -> str:
    """The title of a label; torch's SGD without momentum has the title SGD.

    >>> title("adaxw@b2T=50"), title("adax@dense-no-wake"), title("sgdm, wd=0.0005"), title("mine.py:Lion")
    ('AdaX-W, b2·T = 50', 'AdaX, dense, no wake', 'SGDM, L2 5e-4', 'Lion')
    >>> title("adamw, state_dtype=uint8")
    'AdamW, 8-bit state'
    """
    method, rest = parts(label)
    if label.startswith("torch:SGD") and options is not None and not options.get("momentum"):
        name = "SGD"
    else:
        name = TITLES.get(method) or method.rpartition(":")[2] or method
    rest = re.sub(r"\bb2T\b", "b2·T", rest)
    rest = re.sub(r"\bstate_dtype=(\w+)", lambda found: STATES.get(found[1], found[0]), rest)
    if method in METHODS and METHODS[method].defaults["decay"] == "l2":
        rest = re.sub(r"\bwd=(\S+)", lambda found: f"L2 {_short(found[1])}", rest)
    rest = re.sub(r"\s*=\s*", " = ", rest).replace("-no-", ", no ")
    return f"{name}, {rest}" if rest else name


def _short(number: str) -> str:
    """The shorter of the decimal and the exponential form of a number.

    >>> _short("0.0005"), _short("0.1")
    ('5e-4', '0.1')
    """
    mantissa, _, exponent = f"{float(number):e}".partition("e")
    return min(f"{float(number):g}", f"{float(mantissa):g}e{int(exponent)}", key=len)


def titles(labels: Iterable[str], options: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, str]:
    """The title of each label; labels whose titles would be equal are their own titles.

    >>> titles(["adamw", "torch:AdamW", "adaxw"])
    {'adamw': 'adamw', 'torch:AdamW': 'torch:AdamW', 'adaxw': 'AdaX-W'}
    """
    made = {label: title(label, (options or {}).get(label)) for label in labels}
    count = list(made.values()).count
    return {label: words if count(words) == 1 else label for label, words in made.items()}
