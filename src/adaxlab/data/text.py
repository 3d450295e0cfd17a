"""Tokenize text: UTF-8 files in one of four layouts become one stream of word ids per split.

    benchmark   training-monolingual.tokenized.shuffled/news.en-* and heldout-monolingual.tokenized.shuffled/
                news.en.heldout-*: the One Billion Word benchmark. Held-out part 0 is the test set, part 1 the
                validation set.
    ptb         ptb.train.txt, ptb.valid.txt, ptb.test.txt
    splits      train/, valid/, test/ with text files, or train.txt, valid.txt, test.txt
    files       any text files: the first 90% of their lines, 5%, 5%

A line is a sentence and ends with </s>; words are separated by white space. The vocabulary is that of the training
split, the most frequent word first (a log-uniform sampler needs that order), equal counts in alphabetical order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from adaxlab.errors import LabError, check_on_error

END, UNKNOWN = "</s>", "<unk>"
SPLITS = ("train", "valid", "test")
TRAINING, HELDOUT = (f"{part}-monolingual.tokenized.shuffled" for part in ("training", "heldout"))
Words = Callable[[str], list[str]]
Pieces = Mapping[str, list["Piece"]]


@dataclass(frozen=True)
class Piece:
    """A part of a split: its name, and a function that reads its bytes."""

    name: str
    read: Callable[[], bytes]


@dataclass(frozen=True)
class Corpus:
    """Word ids of each split (int32), the vocabulary in the order of its ids, and the files that were skipped."""

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray
    words: tuple[str, ...]
    counts: np.ndarray
    skipped: tuple[str, ...] = ()
    index: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def end(self) -> int:
        """The id of </s>."""
        return self.index[END]


def pieces(folder: str | Path) -> Pieces:
    """Return the files of each split, according to the layout of `folder`."""
    root = Path(folder)
    if root.is_file():
        return _shares([root])
    if not root.is_dir():
        raise LabError(f"{root}: no such folder; name one with text files (data=FOLDER)")
    if (root / TRAINING).is_dir():
        return _benchmark(root)
    for names in ({s: f"ptb.{s}.txt" for s in SPLITS}, {s: f"{s}.txt" for s in SPLITS}):
        if (root / names["train"]).is_file():
            return {s: [_file(_must(root / name))] for s, name in names.items()}
    if (root / "train").is_dir():
        return {s: [_file(f) for f in _files(_must(root / s, folder=True))] for s in SPLITS}
    return _shares(_files(root))


def _benchmark(root: Path) -> Pieces:
    train = sorted((root / TRAINING).glob("news.en-*"))
    held = sorted(_must(root / HELDOUT, folder=True).glob("news.en.heldout-*"))
    if not train or len(held) < 2:
        raise LabError(
            f"{root}: {len(train)} training and {len(held)} held-out shards; at least one news.en-* in {TRAINING}/ "
            f"and two news.en.heldout-* in {HELDOUT}/ are needed (part 0 is the test set, part 1 the validation set)"
        )
    return {"train": [_file(f) for f in train], "valid": [_file(held[1])], "test": [_file(held[0])]}


def _must(path: Path, folder: bool = False) -> Path:
    if not (path.is_dir() if folder else path.is_file()):
        raise LabError(f"{path}: is missing; train, valid and test are needed")
    return path


def _files(root: Path) -> list[Path]:
    found = sorted(f for f in root.rglob("*") if f.is_file() and not f.name.startswith("."))
    if not found:
        raise LabError(f"{root}: contains no file; name a folder with text files")
    return found


def _file(path: Path) -> Piece:
    return Piece(str(path), path.read_bytes)


def _shares(found: Iterable[Path]) -> Pieces:
    """Split each file by lines: the first 90%, the next 5%, the last 5%."""
    return {
        split: [Piece(str(f), _part(f.read_bytes, *share)) for f in found]
        for split, share in zip(SPLITS, ((0.0, 0.9), (0.9, 0.95), (0.95, 1.0)), strict=True)
    }


def _part(read: Callable[[], bytes], begin: float, end: float) -> Callable[[], bytes]:
    def part() -> bytes:
        lines = read().splitlines(keepends=True)
        return b"".join(lines[round(begin * len(lines)) : round(end * len(lines))])

    return part


def lines_of(piece: Piece, bad: list[str] | None) -> Iterator[str]:
    """Yield the lines of the piece. If it is not UTF-8, raise an error or, with a list `bad`, append its name there."""
    raw = piece.read()
    try:
        decoded = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        if bad is None:
            raise LabError(
                f"{piece.name}: is not UTF-8 (byte {raw[error.start]:#04x} in line {line}); convert it, or leave "
                "such files out with on_error=skip"
            ) from error
        if piece.name not in bad:
            bad.append(piece.name)
        return
    yield from decoded.split("\n")


def encode(
    given: Pieces,
    *,
    on_error: str = "raise",
    min_count: int = 1,
    words: Words = str.split,
    limit: int = 0,
) -> Corpus:
    """Return the corpus of the given pieces.

    Words that appear fewer than `min_count` times in training become <unk> (the benchmark uses 3). A file that is not
    UTF-8 is an error that names it; with on_error="skip" it is left out and listed in `skipped`.

    One pass numbers the words in order of appearance; then they are renumbered by frequency. `limit` (0: none) ends the
    training split with the line at which it reaches that many words.
    """
    if min_count < 1 or limit < 0:
        raise LabError(f"min_count={min_count}, limit={limit}: must be >= 1 and >= 0")
    bad: list[str] | None = [] if check_on_error(on_error) == "skip" else None
    met = _Numbering({END: 0, UNKNOWN: 1})
    raw = {}
    for split in SPLITS:
        stream = array("i")  # four bytes a word: the benchmark has 800 million
        for line in chain.from_iterable(lines_of(piece, bad) for piece in given[split]):
            if found := words(line):
                stream.extend(map(met.__getitem__, found))
                stream.append(0)
                if limit and split == "train" and len(stream) >= limit:
                    break
        if not stream:
            left = f" ({len(bad)} files that are not UTF-8 were skipped)" if bad else ""
            raise LabError(f"the {split} split has no word{left}; check its files")
        raw[split] = np.frombuffer(stream, np.int32)
    counts = np.bincount(raw["train"], minlength=len(met))
    keep = counts >= min_count
    keep[:2] = True
    counts[1] += counts[~keep].sum()
    names = list(met)
    order = sorted(np.flatnonzero(keep).tolist(), key=lambda i: (-counts[i], names[i]))
    renumbered = np.full(len(met), order.index(1), np.int32)
    renumbered[order] = np.arange(len(order), dtype=np.int32)
    chosen = tuple(names[i] for i in order)
    return Corpus(
        **{split: renumbered[ids] for split, ids in raw.items()},
        words=chosen,
        counts=counts[order],
        skipped=tuple(bad or ()),
        index={w: i for i, w in enumerate(chosen)},
    )


class _Numbering(dict[str, int]):
    """A dictionary that assigns the next number to an unknown word."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number
