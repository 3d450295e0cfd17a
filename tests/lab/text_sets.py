"""Small generated texts in the layouts of the real ones."""

from __future__ import annotations

import random

TRAINING = "training-monolingual.tokenized.shuffled"
HELDOUT = "heldout-monolingual.tokenized.shuffled"


def sentences(n, seed, vocabulary=60):
    """n sentences of Zipf-distributed words w0, w1, ..., each drawn near the word before it."""
    rng = random.Random(seed)
    weights = [1 / (k + 1) for k in range(vocabulary)]
    made = []
    for _ in range(n):
        words = rng.choices(range(vocabulary), weights, k=rng.randint(3, 9))
        words = [w if i % 2 else (words[i - 1] + 1) % vocabulary for i, w in enumerate(words)]
        made.append(" ".join(f"w{w}" for w in words))
    return made


def benchmark(root, shards=3, lines=80):
    """The One Billion Word benchmark's folders and file names."""
    for folder in (TRAINING, HELDOUT):
        (root / folder).mkdir(parents=True)
    for i in range(1, shards + 1):
        text = "\n".join(sentences(lines, i)) + "\n"
        (root / TRAINING / f"news.en-{i:05d}-of-{shards + 1:05d}").write_text(text, encoding="utf-8")
    for i in range(2):
        text = "\n".join(sentences(lines // 4, 100 + i)) + "\n"
        (root / HELDOUT / f"news.en.heldout-{i:05d}-of-00050").write_text(text, encoding="utf-8")
    return root


def splits(root, lines=80):
    """train/, valid/, test/ with text files."""
    for i, split in enumerate(("train", "valid", "test")):
        (root / split).mkdir(parents=True)
        (root / split / "a.txt").write_text("\n".join(sentences(lines, i)), encoding="utf-8")
        (root / split / "b.txt").write_text("\n".join(sentences(lines, 10 + i)), encoding="utf-8")
    return root


def ptb(root, lines=80):
    """ptb.train.txt, ptb.valid.txt, ptb.test.txt."""
    root.mkdir(parents=True, exist_ok=True)
    for i, split in enumerate(("train", "valid", "test")):
        (root / f"ptb.{split}.txt").write_text("\n".join(f" {s} " for s in sentences(lines, i)) + "\n")
    return root


def files(root, lines=200):
    """Loose text files."""
    root.mkdir(parents=True, exist_ok=True)
    for i in range(2):
        (root / f"{i}.txt").write_text("\n".join(sentences(lines, i)) + "\n")
    return root


LAYOUTS = {"benchmark": benchmark, "splits": splits, "ptb": ptb, "files": files}
