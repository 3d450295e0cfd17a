"""A data set whose digest is known: the user's own copy, ours, or one that is fetched; never another set unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from adaxlab.errors import LabError


def published(
    what: str,
    places: tuple[Path, Path],
    holds: Callable[[Path], bool],
    digest: Callable[[Path], str],
    wanted: str,
    get: Callable[[], Path],
    tell: Callable[[str], None],
) -> tuple[Path, str]:
    """(folder, digest) of a set with a known digest: at the user's own place, or at ours, or fetched.

    The first of `places` is the user's: what is wrong there is an error, and stays. The second is ours: what is wrong
    there is fetched again.
    """
    own, _ = places
    for place in places:
        if not holds(place):
            continue
        tell(f"checking {place}")
        try:
            found = digest(place)
        except LabError as error:
            if place == own:
                raise
            tell(f"{error}: fetching it again")
            continue
        if found == wanted:
            return place, found
        if place == own:
            raise LabError(f"{place}: {what} there has sha256 {found}, the published one {wanted}")
        tell(f"{place}: is not the published one: fetching it again")
    place = get()
    if (found := digest(place)) != wanted:
        raise LabError(f"{place}: {what} there has sha256 {found}, the published one {wanted}; not used")
    return place, found


def found_by(find: Callable[[Path], Any]) -> Callable[[Path], bool]:
    """Whether `find` finds what it looks for."""

    def holds(place: Path) -> bool:
        try:
            return bool(find(place))
        except LabError:
            return False

    return holds
