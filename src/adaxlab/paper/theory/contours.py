"""Contour lines of a function on a grid, by marching squares."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from adaxlab.paper.theory.problems import Array

Point = tuple[float, float]


def contour(x: Array, y: Array, z: Array, level: float) -> list[list[Point]]:
    """Return the lines z = level on the grid z[row of y, column of x], joined into chains.

    >>> line = contour(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.array([[0.0, 1.0], [0.0, 1.0]]), 0.25)
    >>> sorted(line[0])
    [(0.25, 0.0), (0.25, 1.0)]
    """
    neighbours: dict[Point, list[Point]] = defaultdict(list)
    above = z > level
    mixed = above[:-1, :-1].astype(int) + above[1:, :-1] + above[:-1, 1:] + above[1:, 1:]
    for i, j in zip(*np.nonzero((mixed > 0) & (mixed < 4)), strict=True):
        corners = [(i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j)]
        cuts = [
            _cut(x, y, z, a, b, level)
            for a, b in zip(corners, corners[1:] + corners[:1], strict=True)
            if above[a] != above[b]
        ]
        for start, end in zip(cuts[::2], cuts[1::2], strict=True):
            neighbours[start].append(end)
            neighbours[end].append(start)
    return _chains(neighbours)


def _cut(x: Array, y: Array, z: Array, a: tuple[int, int], b: tuple[int, int], level: float) -> Point:
    """Return the point at which the line crosses the edge a-b; it is the same for both cells of the edge."""
    a, b = min(a, b), max(a, b)
    share = (level - z[a]) / (z[b] - z[a])
    return float(x[a[1]] + share * (x[b[1]] - x[a[1]])), float(y[a[0]] + share * (y[b[0]] - y[a[0]]))


def _chains(neighbours: dict[Point, list[Point]]) -> list[list[Point]]:
    """Return the chains of points: open ones first (from their ends), then closed ones."""
    chains = []
    starts = [p for p, near in neighbours.items() if len(near) == 1] + list(neighbours)
    for start in starts:
        if not neighbours[start]:
            continue
        chain = [start]
        while neighbours[chain[-1]]:
            after = neighbours[chain[-1]].pop()
            neighbours[after].remove(chain[-1])
            chain.append(after)
        chains.append(chain)
    return chains
