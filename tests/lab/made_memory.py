"""The memory study's screen of the transformer from made runs, and the final runs that follow from it."""

from __future__ import annotations

import functools

import made_records

from adaxlab.paper import memory, memory_rule
from adaxlab.paper.tables import memory_study as page
from adaxlab.summary import summarise

SCREEN = memory.GPT_SCREEN
RATES = memory.GPT_RATES
CHOSEN = ["asymmetric 0.3", "log-time 8", "polynomial 0.8"]


def results(name):
    """Losses over the rates: fading 0.95's range is three rates, asymmetric 0.3's five, and one row always diverges."""
    if name == "equal":
        return [None] * 6
    wide = {"asymmetric 0.3": 5, "log-time 8": 4, "polynomial 0.8": 4}.get(name, 3)
    offset = {"log-time 8": -0.001, "growing b2T=10": -0.002}.get(name, 0.0)
    return [1.301 + offset] + [1.30 + offset] * (wide - 1) + [1.5] * (5 - wide) + [None]


@functools.cache
def runs():
    return [
        made_records.run(
            SCREEN.name, row.name, value, seed=20_000, lr=lr, purpose="tune", higher=False,
        )
        for row in SCREEN.rows
        for lr, value in zip(RATES, results(row.name), strict=True)
    ]  # fmt: skip


@functools.cache
def screen():
    return page.trials(summarise(SCREEN, runs()))


@functools.cache
def final():
    return memory_rule.final(screen(), tuple(CHOSEN), 0.02, higher=False)
