"""What to install where a framework is missing or too old: one line, before its first name is used."""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata


def need(who: str, install: str, **least: str) -> None:
    """Raise ImportError with what to install, unless every package is there in at least the version given.

    >>> need("adaxopt.jax", "adaxopt[jax]", no_such_package="1.0")
    Traceback (most recent call last):
    ImportError: adaxopt.jax needs no_such_package>=1.0, which is not installed: pip install "adaxopt[jax]"
    """
    for name, version in least.items():
        what = f'"{install}"' if "[" in install else install  # a shell would read the brackets
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"{who} needs {name}>={version}, which is not installed: pip install {what}")
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:  # a source tree on the path: its version is its owner's affair
            continue
        if _order(found) < _order(version):
            raise ImportError(f"{who} needs {name}>={version}, found {found}: pip install --upgrade {what}")


def _order(version: str) -> tuple[int, ...]:
    """The numbers of a release, enough to compare two of one package: 2.13.0+cpu is (2, 13, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", version)[0].split("."))  # type: ignore[index]
