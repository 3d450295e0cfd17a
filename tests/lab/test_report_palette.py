"""The colours of the report, measured: contrast to the paper, distance under every kind of colour vision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from adaxlab.report import palette, theme
from adaxopt.zoo import METHODS

# Machado, Oliveira and Fernandes 2009, severity 1.0.
VISION = {
    "normal": np.eye(3),
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
CORE = ("sgdm", "adam", "adamw", "amsgradw", "adax", "adaxw", "padax")


def linear(colour):
    c = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def matrix(numbers):
    return np.array(numbers.split(), float).reshape(3, 3)


# Ottosson 2020.
LMS = matrix(
    "0.41222147 0.53633254 0.05144599 0.2119035 0.68069955 0.10739696 0.08830246 0.28171884 0.6299787"
)
LAB = matrix(
    "0.21045426 0.79361779 -0.00407205 1.9779985 -2.4285922 0.45059371 0.02590404 0.78277177 -0.80867577"
)


def oklab(rgb):
    return LAB @ np.cbrt(LMS @ np.clip(rgb, 0, 1))


def contrast(a, b):
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def distance(a, b, vision):
    eye = np.array(VISION[vision])
    return float(np.linalg.norm(oklab(eye @ linear(a)) - oklab(eye @ linear(b))))


def test_every_method_of_the_zoo_has_its_own_look():
    assert set(palette.LOOKS) <= set(METHODS)
    for theme_name in ("light", "dark"):
        assert len({look.on(theme_name) for look in palette.LOOKS.values()}) == len(palette.LOOKS)


@pytest.mark.parametrize("paper", ["light", "dark"])
def test_colours_stand_out_from_the_paper(paper):
    named = {**palette.LOOKS, **palette.looks(["mine.py:A", "mine.py:B", "mine.py:C", "mine.py:D"])}
    low = {name: contrast(look.on(paper), palette.PAPER[paper]) for name, look in named.items()}
    assert min(low.values()) >= 3, low
    for ink in ("ink", "soft"):
        assert contrast(theme.TOKENS[paper][ink], palette.PAPER[paper]) >= 4.5


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("paper", ["light", "dark"])
def test_colours_are_told_apart_by_every_eye(paper, vision):
    """For comparison: the smallest distance among Okabe and Ito's eight is 0.076 under these simulations."""
    for a, b in itertools.combinations(palette.LOOKS, 2):
        one, two = palette.LOOKS[a], palette.LOOKS[b]
        d = distance(one.on(paper), two.on(paper), vision)
        assert d >= (0.108 if {a, b} <= set(CORE) else 0.07), (a, b, d)
        if d < 0.1:
            assert (one.dash, one.shape) != (two.dash, two.shape), (a, b, d)


def test_a_method_looks_the_same_whoever_is_beside_it():
    alone = palette.looks(["adaxw"])["adaxw"]
    for others in (["sgdm", "adaxw"], ["x.py:Mine", "adaxw", "adaxw, lr=0.1"]):
        assert palette.looks(others)["adaxw"] == alone
    variants = palette.looks(["adaxw, lr=0.1", "adaxw, lr=0.2", "adaxw, lr=0.3"])
    assert len({(v.light, v.dash, v.shape) for v in variants.values()}) == 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_variants_are_told_apart(method, count):
    made = list(palette.looks([f"{method}, lr={i}" for i in range(count)]).values())
    for paper in ("light", "dark"):
        assert min(contrast(v.on(paper), palette.PAPER[paper]) for v in made) >= 3
        for one, two in itertools.combinations(made, 2):
            near = min(distance(one.on(paper), two.on(paper), vision) for vision in VISION)
            assert near >= 0.05 or (one.dash, one.shape) != (two.dash, two.shape)
        if count <= 3:
            pairs = itertools.combinations(made, 2)
            assert all(distance(a.on(paper), b.on(paper), "normal") > 0.05 for a, b in pairs)


@pytest.mark.parametrize("count", [9, 20, 31])
def test_of_many_variants_neighbours_have_different_colours(count):
    made = list(palette.looks(["adaxw", *(f"adaxw, decay {i}" for i in range(count))]).values())[1:]
    for one, two in itertools.pairwise(made):
        assert all(distance(one.on(paper), two.on(paper), "normal") > 0.05 for paper in ("light", "dark"))
