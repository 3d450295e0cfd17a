"""What to install where a framework is missing or too old: one line, before its first name is used."""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata


def need(who: str, install: str, **least: str) -> None:
    """Raise ImportError with what to install, unless every package is there in at least the version given.

    >>> need("register_timm", "timm", no_such_package="1.0")
    Traceback (most recent call last):
    ImportError: register_timm needs no_such_package>=1.0, which is not installed: pip install timm
    """
    for name, version in least.items():
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"{who} needs {name}>={version}, which is not installed: {pip_install(install)}"
            )
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:  # a source tree on the path: its version is its owner's affair
            continue
        if _order(found) < _order(version):
            raise ImportError(
                f"{who} needs {name}>={version}, found {found}: {pip_install(install, '--upgrade ')}"
            )


def pip_install(install: str, option: str = "") -> str:
    """The command; an extra of this package in quotes (a shell would read the brackets), and from a checkout too."""
    if "[" not in install:
        return f"pip install {option}{install}"
    extra = install[install.index("[") :]
    return f'pip install {option}"{install}" (from a checkout: pip install {option}-e ".{extra}")'


def _order(version: str) -> tuple[int, ...]:
    """The numbers of a release, enough to compare two of one package: 2.13.0+cpu is (2, 13, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", version)[0].split("."))  # type: ignore[index]


LAB = pip_install("adaxopt[lab]")
"""What makes the command `adax` whole: tables, figures, reports, pictures."""
