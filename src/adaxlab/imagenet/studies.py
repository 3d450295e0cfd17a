"""The ImageNet studies by name, each one call: `adax reproduce imagenet/tiny --set data=FOLDER`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from adaxlab.data import default_root
from adaxlab.errors import LabError, unknown
from adaxlab.imagenet import cache as caches
from adaxlab.imagenet import drive, tables
from adaxlab.imagenet.book import STUDIES, Study, best_rates, tuned_rows
from adaxlab.imagenet.feed import Feed, hold_out, pictures
from adaxlab.imagenet.ranks import Ranks, joined
from adaxlab.imagenet.recipe import PRECISIONS
from adaxlab.messages import say

NAMES = tuple(f"imagenet/{name}" for name in STUDIES)


def run(
    name: str | Sequence[str],
    out: str | Path = "runs",
    *,
    data: str = "",
    cache: str = "",
    device: str = "auto",
    seeds: int = 0,
    epochs: int = 0,
    batch: int = 0,
    groups: int = 0,
    width: int = 0,
    seconds: float = math.inf,
    precision: str = "bf16",
    channels_last: bool | None = None,
    graph: bool | None = None,
    resident: bool | None = None,
    on_error: str = "raise",
    workers: int = 0,
    checkpoint_seconds: float = 60.0,
    compiled: bool = False,
    tell: drive.Say = say,
) -> Path | bool:
    """Carry out the study `name` as far as `seconds` (decoding included) allow: the record's path, or False when more
    is to be done. Several names are several studies, one after the other: `tuned` may follow `tuning`, whose best rates
    it takes; the path is the last one's.

    Results are lines of `out`/<study>.jsonl, and `tell` gets their table at the end. `data` is a cache, a pack or a
    folder with train/ and val/ (default: where `adax data get tiny-imagenet` puts it), decoded once into `cache`
    (default: beside it). `seeds`, `epochs`, `batch`, `groups` and `width` other than 0 replace the study's own, and the
    records say so. Under torchrun every process calls this, and the first one writes;
    `out` and `data` are folders that all of them see.
    """
    began = drive.now()
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    sizes = dict(seeds=seeds, epochs=epochs, batch=batch, groups=groups, width=width)
    names = dict.fromkeys([name] if isinstance(name, str) else name)
    chosen = [changed(find(one), **sizes) for one in names]
    if not chosen:
        raise LabError("no study is named; known are " + ", ".join(NAMES))
    how = drive.How(precision, channels_last, graph, checkpoint_seconds, compiled)
    opened = Opened(data, cache, resident, on_error, workers)
    with joined(device) as ranks:
        say: drive.Say = tell if ranks.first else (lambda text: None)
        for study in chosen:
            if study.follows:
                study = _tuned(study, Path(out))
            given = load(study, opened, ranks, say)
            if not drive.carry_out(
                study, given, Path(out), ranks, how, seconds=seconds, began=began, tell=say
            ):
                return False
            path = Path(out) / f"{study.name}.jsonl"
            say(tables.show(study, drive.records(path)))
    return path


def find(name: str) -> Study:
    """The study called `name`, with or without `imagenet/`."""
    short = name.removeprefix("imagenet/")
    if short not in STUDIES:
        raise unknown("study", name, NAMES)
    return STUDIES[short]


def changed(study: Study, *, seeds: int = 0, **recipe: int) -> Study:
    """The study with the values that are not 0 in the place of its own."""
    for key, value in {"seeds": seeds, **recipe}.items():
        if value < 0:
            raise LabError(f"{key}={value}: must be >= 1 (0: the study's own)")
    given: dict[str, Any] = {key: value for key, value in recipe.items() if value}
    return replace(study, seeds=seeds or study.seeds, recipe=replace(study.recipe, **given))


def _tuned(study: Study, out: Path) -> Study:
    """Its rows from the lines of tuning: in `out`, else in the committed records."""
    lines = drive.own(out / "tuning.jsonl") or drive.records(Path("records/imagenet/tuning.jsonl"))
    return replace(study, rows=tuned_rows(best_rates(lines)))


def place_of(data: str) -> Path:
    """The folder that is named, or where `adax data get tiny-imagenet` puts the set."""
    if data:
        return Path(data)
    for place in (
        default_root() / "tiny-imagenet" / "tiny-imagenet-200",
        default_root() / "tiny-imagenet-200",
    ):
        if place.is_dir():
            return place
    raise LabError(
        f"{default_root()}: no Tiny-ImageNet there; run `adax data get tiny-imagenet`, or name a folder that has "
        "train/ and val/, a pack or a cache (data=FOLDER)"
    )


@dataclass
class Opened:
    """Where pictures are and how they are read; what was read is kept for the next study of the same size."""

    data: str = ""
    cache_folder: str = ""
    resident: bool | None = None
    on_error: str = "raise"
    workers: int = 0
    _found: dict[int, caches.Cache] = field(default_factory=dict)
    _feeds: dict[tuple[int, str], Feed] = field(default_factory=dict)

    def found(self, stored: int, ranks: Ranks, tell: drive.Say) -> caches.Cache:
        """The cache of this size, made first if need be (by the first process; the others wait)."""
        if stored in self._found:
            return self._found[stored]
        failed: LabError | None = None
        if ranks.first:
            try:
                self._found[stored] = caches.obtain(
                    place_of(self.data),
                    stored,
                    cache=self.cache_folder,
                    on_error=self.on_error,
                    workers=self.workers,
                    tell=tell,
                )
            except LabError as error:
                failed = error
        if not ranks.agree(failed is None):
            raise failed or LabError("the first process could not read the pictures; its message says why")
        if not ranks.first:  # the first has seen to it: thousands of files need not be looked at again
            self._found[stored] = caches.load(
                caches.folder_of(place_of(self.data), stored, self.cache_folder)
            )
        return self._found[stored]

    def feed(self, stored: int, split: str, ranks: Ranks) -> Feed:
        """A split on the device."""
        key = (stored, split)
        if key not in self._feeds:
            part = self._found[stored].parts[split]
            self._feeds[key] = Feed(pictures(part, ranks.device, self.resident))
        return self._feeds[key]


def load(study: Study, opened: Opened, ranks: Ranks, tell: drive.Say = lambda text: None) -> drive.Data:
    """The pictures that the study trains and tests on."""
    stored = study.recipe.stored
    found = opened.found(stored, ranks, tell)
    train = opened.feed(stored, "train", ranks)
    if study.holdout:
        train, test = hold_out(train, max(1, round(study.holdout * len(train))))
    else:
        test = opened.feed(stored, "val", ranks)
    tell(
        f"{study.name}: {len(train):,} pictures of {len(found.classes)} classes to train on, {len(test):,} to test"
        + (f"; {len(found.skipped)} skipped" if found.skipped else "")
    )
    return drive.Data(train, test, len(found.classes), found.digest)
