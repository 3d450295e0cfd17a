"""`python -m adaxlab.imagenet`: pictures and studies on a bare machine (torch, numpy, Pillow).

    pack FOLDER OUT           encoded pictures in pieces of at most 50 MB that can be carried
    decode PLACE OUT          a pack or folders as a memory-mapped cache of pixels, by all processors
    verify PLACE              compare a pack or a cache with its hashes
    speed --data PLACE        pictures a second, with and without the network; the methods' steps in turn
    STUDY ... --data PLACE    tiny, tuning, tuned, tiny-resnet50, resnet18, resnet50, one after the other; also under
                              torchrun

Exit code 3: the time (--seconds) was up before the studies were complete; the same command goes on.
"""

# What needs torch is imported where it is used: decoding starts processes, and each reads this file again.
from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from adaxlab import files
from adaxlab.errors import LabError

STUDIES = ("tiny", "tuning", "tuned", "tiny-resnet50", "resnet18", "resnet50")
TIMED = tuple(name for name in STUDIES if name != "tuning")
"""Those of one row a method; tuning has each of them at every rate."""


BATCHES = "of each row; a fifth of them is a round of the methods in turn; on a CPU a few are enough"


def say(text: str) -> None:
    """A line of progress."""
    print(text, flush=True)


def _study(name: str) -> str:
    if name not in STUDIES:
        raise argparse.ArgumentTypeError(f"unknown study {name!r}; known are {', '.join(STUDIES)}")
    return name


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(
        prog="python -m adaxlab.imagenet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    pack = commands.add_parser("pack")
    pack.add_argument("folder")
    pack.add_argument("out")
    decode = commands.add_parser("decode")
    decode.add_argument("place")
    decode.add_argument("out")
    decode.add_argument("--size", type=int, default=64)
    for one in (pack, decode):
        one.add_argument("--on-error", choices=("raise", "skip"), default="raise")
    commands.add_parser("verify").add_argument("place")
    speed = commands.add_parser("speed")
    speed.add_argument("--study", choices=TIMED, default="tiny")
    speed.add_argument("--batches", type=int, default=100, help=BATCHES)
    speed.add_argument("--record", default="")
    studies = [commands.add_parser(name) for name in STUDIES]
    for one in (speed, *studies):
        one.add_argument("--data", default="")
        one.add_argument("--cache", default="")
        one.add_argument("--device", default="auto")
        one.add_argument("--precision", choices=("bf16", "tf32", "fp32", "fp64"), default="bf16")
        one.add_argument("--contiguous", action="store_true", help="no channels_last")
        one.add_argument("--compiled", action="store_true", help="the network by torch.compile")
        one.add_argument("--mapped", action="store_true", help="do not keep the pictures on the device")
        for key in ("batch", "width", "groups"):
            one.add_argument(f"--{key}", type=int, default=0)
    for one in studies:
        one.add_argument("then", nargs="*", type=_study, metavar="STUDY", help="studies that follow")
        one.add_argument("--out", default="runs")
        one.add_argument("--seconds", type=float, default=math.inf)
        one.add_argument("--checkpoint-seconds", type=float, default=60.0)
        one.add_argument("--no-graph", action="store_true", help="no CUDA graph")
        one.add_argument("--on-error", choices=("raise", "skip"), default="raise")
        for key in ("seeds", "epochs"):
            one.add_argument(f"--{key}", type=int, default=0)
    for one in (decode, speed, *studies):
        one.add_argument("--workers", type=int, default=0, help="processes that decode (0: all processors)")
    return top


def prepare(given: argparse.Namespace) -> int:
    """pack, decode, verify."""
    from adaxlab.imagenet import cache, pack, source

    began = time.monotonic()
    if given.command == "pack":
        made = pack.make(given.folder, given.out, on_error=given.on_error, tell=say)
        say(f"{given.out}: {sum(made.counts.values()):,} pictures, digest {made.manifest['digest']}")
    elif given.command == "decode":
        found = cache.make(
            source.open_source(given.place, given.on_error),
            given.out,
            given.size,
            on_error=given.on_error,
            workers=given.workers,
            tell=say,
        )
        count = sum(len(part) for part in found.parts.values())
        say(f"{given.out}: {count:,} pictures of {found.size} pixels, digest {found.digest}")
    else:
        held = Path(given.place) / cache.MANIFEST
        (cache.load(given.place) if held.is_file() else source.Pack(given.place)).verify()
        say(f"{given.place}: every piece is what its list says")
    say(f"{time.monotonic() - began:.1f} s")
    return 0


def measure(given: argparse.Namespace) -> int:
    """speed."""
    from adaxlab.imagenet import drive, speed, studies, tables
    from adaxlab.imagenet.ranks import joined

    asked = studies.find(given.study)
    study = studies.changed(asked, batch=given.batch, width=given.width, groups=given.groups)
    name = study.name if study.recipe == asked.recipe else f"{study.name}, changed"
    with joined(given.device) as ranks:
        opened = studies.Opened(
            given.data, given.cache, False if given.mapped else None, workers=given.workers
        )
        data = studies.load(study, opened, ranks, say if ranks.first else (lambda text: None))
        how = drive.How(given.precision, False if given.contiguous else None, compiled=given.compiled)
        runs = study.runs()[: len(study.rows)]
        found = speed.measure(data, study.recipe, ranks, how, given.batches, say, runs, name)
    if not ranks.first:
        return 0
    if given.record:
        Path(given.record).parent.mkdir(parents=True, exist_ok=True)
        files.write_json(Path(given.record), found)
    say(tables.speed_table(found))
    return 0


def carry(given: argparse.Namespace) -> int:
    """Studies."""
    from adaxlab.imagenet import studies

    options = {
        key: getattr(given, key)
        for key in (
            "data",
            "cache",
            "device",
            "precision",
            "seconds",
            "on_error",
            "workers",
            "checkpoint_seconds",
        )
    }
    sizes = {key: getattr(given, key) for key in ("seeds", "epochs", "batch", "width", "groups")}
    done = studies.run(
        [given.command, *given.then],
        given.out,
        channels_last=False if given.contiguous else None,
        graph=False if given.no_graph else None,
        resident=False if given.mapped else None,
        compiled=given.compiled,
        tell=say,
        **options,
        **sizes,
    )
    return 3 if done is False else 0


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments ask; an error of the lab is one line and its exit code."""
    given = parser().parse_args(arguments)
    try:
        if given.command in ("pack", "decode", "verify"):
            return prepare(given)
        return measure(given) if given.command == "speed" else carry(given)
    except LabError as error:
        print(f"adaxlab.imagenet: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
