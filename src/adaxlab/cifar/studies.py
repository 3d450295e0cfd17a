"""The CIFAR-10 studies by name: one in a call (`adax reproduce cifar10/table2`), or several, stacked together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab.cifar import drive, order, tables
from adaxlab.cifar.book import STUDIES, Study
from adaxlab.cifar.feed import Images
from adaxlab.data import cifar10, default_root
from adaxlab.errors import LabError, unknown
from adaxlab.messages import say
from adaxlab.settings import choose_device

NAMES = tuple(f"cifar10/{name}" for name in STUDIES)
HOLDOUT_SEED = 20200421
PRECISIONS = ("bf16", "tf32", "fp32")


def run(
    name: str | Sequence[str],
    out: str = "runs",
    *,
    data: str = "",
    device: str = "auto",
    seeds: int = 0,
    epochs: int = 0,
    per_stack: int = 25,
    seconds: float = math.inf,
    checkpoint_seconds: float = 120.0,
    precision: str = "bf16",
    reuse: str = "",
    tell: drive.Say = say,
) -> Path | bool:
    """Carry out the study `name` as far as `seconds` allow: the record's path, or False when more is to be done.

    Results are lines of `out`/<study>.jsonl, and `tell` gets their table at the end. Several names are carried out
    together, their runs in common stacks where recipe and data allow it, and the path is that of the folder. `data` is
    a folder with CIFAR-10 (default: where `adax data get` puts it);
    `seeds` and `epochs` other than 0 replace the study's own, and the records say so; runs that another study in `out`,
    or a record in the folder `reuse`, has under another name are taken from there. At least every
    `checkpoint_seconds`, when an epoch ends, a checkpoint is written: the same call goes on from it.
    """
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    for given, value, least in (("per_stack", per_stack, 1), ("seeds", seeds, 0), ("epochs", epochs, 0)):
        if value < least:
            raise LabError(f"{given}={value}: must be {least} or more")
    if reuse and not Path(reuse).is_dir():
        raise LabError(f"reuse={reuse}: no such folder; name one that holds records, such as records/cifar10")
    chosen = _studies(name)
    if seeds:
        chosen = [replace(study, seeds=seeds) for study in chosen]
    if epochs:
        chosen = [replace(study, recipe=replace(study.recipe, epochs=epochs)) for study in chosen]
    train, test = images(data, choose_device(device))
    complete = drive.carry_out(
        chosen,
        lambda holdout: hold_out(train, holdout) if holdout else (train, test),
        Path(out),
        per_stack=per_stack,
        seconds=seconds,
        checkpoint_seconds=checkpoint_seconds,
        precision=precision,
        reuse=[
            path for folder in (out, *filter(None, [reuse])) for path in sorted(Path(folder).glob("*.jsonl"))
        ],
        tell=tell,
    )
    if not complete:
        return False
    paths = {study.name: Path(out) / f"{study.name}.jsonl" for study in chosen}
    for study in chosen:
        tell(tables.show(study, drive.records(paths[study.name])))
    return paths[chosen[0].name] if isinstance(name, str) else Path(out)


def _studies(name: str | Sequence[str]) -> list[Study]:
    """The study or studies of that name, each once."""
    names = [name] if isinstance(name, str) else list(name)
    if not names:
        raise LabError(f"no study is named; known are {', '.join(NAMES)}")
    return list({study.name: study for study in map(find, names)}.values())


def find(name: str) -> Study:
    """The study called `name`, with or without `cifar10/`."""
    short = name.removeprefix("cifar10/")
    if short not in STUDIES:
        raise unknown("study", name, NAMES)
    return STUDIES[short]


def read(folder: str) -> cifar10.Cifar10:
    """CIFAR-10 from `folder`, or from where `adax data get cifar10` put it."""
    if folder:
        return cifar10.load(folder)
    root = default_root()
    try:
        return cifar10.load(root if _holds(root) else root / "cifar10")
    except LabError as error:
        raise LabError(
            f"{error} (data=FOLDER names it: after --set in reproduce, after --task-option in compare)"
        ) from error


def _holds(root: Path) -> bool:
    try:
        cifar10.layout(root)
    except LabError:
        return False
    return True


def images(folder: str, device: Any) -> tuple[Images, Images]:
    """CIFAR-10 on the device."""
    data = read(folder)
    train = Images.of(data.train_images, data.train_labels, device)
    return train, Images.of(data.test_images, data.test_labels, device)


def hold_out(train: Images, count: int) -> tuple[Images, Images]:
    """(the rest, `count` images chosen once and for all): for tuning without the test set."""
    n, device = len(train), train.labels.device
    if not 0 < count < n:
        raise LabError(f"holdout={count}: must be between 1 and {n - 1}")
    mixed = order.permutations([HOLDOUT_SEED], 0, n, device)[0].long()
    kept, rest = mixed[:count].sort().values, mixed[count:].sort().values
    return tuple(Images(train.images[i], train.labels[i]) for i in (rest, kept))  # type: ignore[return-value]
