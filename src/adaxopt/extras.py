"""Import-time checks that name the package to install if a framework is missing or too old."""

from __future__ import annotations

import importlib.util
import re
from importlib import metadata


def need(who: str, install: str, **least: str) -> None:
    """Raise ImportError, naming what to install, unless every package is installed in at least the given version.

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
        except metadata.PackageNotFoundError:  # a source tree on the path: its version is not checked
            continue
        if _order(found) < _order(version):
            raise ImportError(
                f"{who} needs {name}>={version}, found {found}: {pip_install(install, '--upgrade ')}"
            )


def pip_install(install: str, option: str = "") -> str:
    """The pip command. An extra of this package is quoted for the shell, and the command for a checkout is added."""
    if "[" not in install:
        return f"pip install {option}{install}"
    extra = install[install.index("[") :]
    return f'pip install {option}"{install}" (from a checkout: pip install {option}-e ".{extra}")'


def _order(version: str) -> tuple[int, ...]:
    """The release segment of a version as a tuple, for comparisons: 2.13.0+cpu is (2, 13, 0)."""
    return tuple(int(part) for part in re.match(r"\d+(\.\d+)*", version)[0].split("."))  # type: ignore[index]


LAB = pip_install("adaxopt[lab]")
"""The command that installs everything `adax` needs: tables, figures, reports, images."""
