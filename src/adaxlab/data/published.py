"""Find or download a data set whose digest is known, and verify it."""

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
    """Return (folder, digest) of a set with a known digest, downloading it if neither of `places` holds it.

    The first of `places` belongs to the user: a wrong set there is an error and is left untouched. The second is our
    cache: a wrong set there is downloaded again.
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
    try:
        place = get()
    except OSError as error:
        why = error.strerror or error
        raise LabError(
            f"{what}: cannot write in {places[1].parent}: {why}; check the folder, or name another with --root"
        ) from error
    if (found := digest(place)) != wanted:
        raise LabError(f"{place}: {what} there has sha256 {found}, the published one {wanted}; not used")
    return place, found


def found_by(find: Callable[[Path], Any]) -> Callable[[Path], bool]:
    """Return a function that says whether `find` succeeds, that is, raises no LabError."""

    def holds(place: Path) -> bool:
        try:
            return bool(find(place))
        except LabError:
            return False

    return holds
