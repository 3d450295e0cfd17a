"""Figures of the synthetic problems: Figure 3(a) with the positions, and regret on problem (3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from adaxlab.paper.theory.figure_style import (
    AXIS,
    INK,
    NAMES,
    SOFT,
    Figure,
    Record,
    colour_of,
    decades,
    log_axis,
    panel_title,
)
from adaxlab.report.encoding import data as rows

SHOWN_4 = ("sgdm", "sgdm, b1=0", "amsgrad", "adam", "adax")
SHOWN_3 = ("sgdm", "amsgrad", "nosadam", "adax", "adam, b2=0.999", "adam, b2=0.99", "adam, b2=0.1")


def figure_3a(record: Record) -> Figure:
    data = record["figure_3a"]
    by = {row["optimizer"]: row for row in data["rows"]}
    points = [
        {"optimizer": k, "t": t, "x": x, "u": u}
        for k in SHOWN_4
        for t, x, u in zip(data["at"], by[k]["positions"], by[k]["updates"], strict=True)
    ]
    colour = colour_of(SHOWN_4)
    steps = data["steps"]
    time = alt.X(**log_axis("t", "step", decades(1, 1e5), [1, steps]))
    size = alt.Y(**log_axis("u", "size of the update", decades(1e-6, 1e-2), [4e-7, 1.4e-2], "~e"))
    curves = alt.Chart(rows(points)).mark_line().encode(x=time, y=size, color=colour)
    ends = [
        {
            "optimizer": k,
            "t": steps,
            "u": by[k]["update_end"],
            "words": f"{NAMES[k]} {by[k]['update_end']:.1e}",
        }
        for k in SHOWN_4
    ]
    shift = {"sgdm": 7, "amsgrad": -7}
    sizes = alt.layer(
        curves,
        *(_text([e], time, size, colour, dx=7, dy=shift.get(e["optimizer"], 0), align="left") for e in ends),
    ).properties(width=300, height=280, title=panel_title("Update sizes: fed the gradient wherever x is"))

    height = alt.Y(
        "x:Q",
        title="position x",
        scale=alt.Scale(domain=[-0.22, 1.05], nice=False),
        axis=alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1], tickCount=9, labelOverlap=False),
    )
    lines = alt.Chart(rows(points)).mark_line(clip=True).encode(x=time, y=height, color=colour)
    zero = (
        alt.Chart(rows([{"x": 0, "words": "optimum"}])).mark_rule(color=INK, strokeWidth=1).encode(y=height)
    )
    dots = alt.Chart(
        rows([{"optimizer": k, "t": by[k]["crossing"], "x": 0.0} for k in SHOWN_4 if by[k]["crossing"]])
    )
    crossing = {k: by[k]["crossing"] for k in SHOWN_4}
    words = [
        {"optimizer": "adax", "t": crossing["adax"], "x": 0.0, "words": f"AdaX, step {crossing['adax']:,}"},
        {
            "optimizer": "adam",
            "t": crossing["adam"],
            "x": 0.0,
            "words": f"Adam, AMSGrad {crossing['adam']:,}",
        },
        {"optimizer": "sgdm", "t": crossing["sgdm"], "x": 0.0, "words": f"SGDM {crossing['sgdm']:,}"},
    ]
    beside = {"optimizer": "sgdm, b1=0", "t": 9000, "x": 0.42, "words": "SGD"}
    places = alt.layer(
        zero,
        lines,
        dots.mark_point(filled=True, size=50, opacity=1).encode(x=time, y=height, color=colour),
        _text(words[:1], time, height, colour, dx=-8, dy=15, align="right"),
        _text(words[1:2], time, height, colour, dx=-2, dy=26, align="left"),
        _text(words[2:], time, height, colour, dx=-2, dy=42, align="left"),
        _text([beside], time, height, colour, dx=12, dy=0, align="left"),
    ).properties(width=300, height=280, title=panel_title("Positions: the problem as stated, optimum at 0"))
    caption = (
        f"Problem (4) with the paper's values (C = {data['C']:g}, lambda = {data['fade']:g}, x0 = {data['x0']:g}). "
        "Left, what Figure 3(a) shows; right, what it "
        "leaves out. Dots mark the first step below the optimum, from where there is no way back."
    )
    return Figure(
        "figure-3a",
        "Small updates in the end, and past the optimum long before",
        caption,
        alt.hconcat(sizes, places, spacing=175, bounds="flush").resolve_scale(color="shared"),
        SHOWN_4,
        "Problem (4), the paper's values: what Figure 3(a) shows, and where x went",
    )


def _text(
    points: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, colour: alt.Color, **how: Any
) -> alt.Chart:
    return (
        alt.Chart(rows(points))
        .mark_text(fontSize=11.5, fontWeight="bold", **how)
        .encode(x=x, y=y, text="words:N", color=colour)
    )


def regret_curves(record: Record) -> Figure:
    three, chance = record["alternating"], record["rare"]
    colour = colour_of(SHOWN_3)

    def curves(data: Record, x: alt.X, y: alt.Y) -> alt.Chart:
        points = [
            {"optimizer": row["optimizer"], "t": t, "regret": r}
            for row in sorted(
                data["rows"],
                key=lambda row: row["optimizer"].startswith("ada") and "," not in row["optimizer"],
            )
            if row["optimizer"] in SHOWN_3
            for t, r in zip(data["at"], row["regret"], strict=True)
            if t >= 10
        ]
        return alt.Chart(rows(points)).mark_line().encode(x=x, y=y, color=colour)

    x3 = alt.X(**log_axis("t", "step", decades(10, three["steps"]), [10, three["steps"]]))
    y3 = alt.Y(**log_axis("regret", "average regret", [1e-4, 1e-3, 1e-2, 0.1, 1], [1.5e-4, 1.3], "~g"))
    end = {row["optimizer"]: row["regret"] for row in three["rows"]}
    at = three["at"].index(min(three["at"], key=lambda t: abs(t - 3000)))
    spot = {"t": three["at"][at], "regret": end["adax"][at]}
    left = alt.layer(
        curves(three, x3, y3),
        _text(
            [
                {
                    "optimizer": "adam, b2=0.1",
                    "t": three["at"][at],
                    "regret": end["adam, b2=0.1"][at],
                    "words": "Adam, b2 = 0.1",
                }
            ],
            x3,
            y3,
            colour,
            dy=-11,
        ),
        _text(
            [{"optimizer": "sgdm", "t": three["at"][at], "regret": end["sgdm"][at], "words": "SGD"}],
            x3,
            y3,
            colour,
            dx=-9,
            dy=10,
            align="right",
        ),
        _text(
            [{"optimizer": "adax", **spot, "words": "AdaX; on the same line"}],
            x3,
            y3,
            colour,
            dx=18,
            dy=-19,
            align="left",
        ),
        *(
            alt.Chart(rows([{**spot, "words": words}]))
            .mark_text(fontSize=11.5, color=SOFT, dx=18, dy=dy, align="left")
            .encode(x=x3, y=y3, text="words:N")
            for words, dy in (("AMSGrad, NosAdam and", -4), ("Adam with b2 = 0.99, 0.999", 11))
        ),
    ).properties(width=320, height=280, title=panel_title("Problem (3): slope 3 every third step, else -1"))

    xr = alt.X(**log_axis("t", "step", decades(10, chance["steps"]), [10, chance["steps"]]))
    yr = alt.Y(
        "regret:Q",
        title="average regret",
        scale=alt.Scale(domain=[0, 0.46], nice=False),
        axis=alt.Axis(values=[0, 0.1, 0.2, 0.3, 0.4], tickCount=9),
    )
    last = {row["optimizer"]: row["regret"][-1] for row in chance["rows"]}
    names = [
        {"optimizer": k, "t": chance["steps"], "regret": last[k], "words": words}
        for k, words in (
            ("adam, b2=0.1", "Adam, b2 = 0.1"),
            ("adam, b2=0.99", "Adam, b2 = 0.99"),
            ("adam, b2=0.999", "Adam, b2 = 0.999"),
            ("amsgrad", "AMSGrad"),
            ("adax", "AdaX, NosAdam"),
            ("sgdm", "SGD"),
        )
    ]
    nudge = {
        "adam, b2=0.1": -11,
        "adam, b2=0.99": 4,
        "adam, b2=0.999": 5,
        "amsgrad": -5,
        "adax": 4,
        "sgdm": 18,
    }
    worst = (
        alt.Chart(rows([{"regret": 2 * chance["mean_gradient"]}]))
        .mark_rule(color=AXIS, strokeDash=[2, 3])
        .encode(y=yr)
    )
    right = alt.layer(
        worst,
        curves(chance, xr, yr),
        *(_text([n], xr, yr, colour, dx=7, dy=nudge[n["optimizer"]], align="left") for n in names),
    ).properties(width=320, height=280, title=panel_title("Rare: slope 1010 with chance 0.01, else -10"))
    caption = (
        f"Average regret over {three['steps']:,} steps, b1 = 0, alpha_t falling like 1/sqrt(t). On problem (3) Adam "
        "fails at b2 = 0.1 alone; with rare "
        f"gradients (mean of {chance['seeds']} seeds) it fails at 0.99 and 0.999 too. The dotted line is the regret "
        "of staying at the worst point."
    )
    return Figure(
        "reddi",
        "When Adam goes the wrong way, and who does not",
        caption,
        alt.hconcat(left, right, spacing=34).resolve_scale(color="shared"),
        SHOWN_3,
        "A line that stays up is a method that does not converge",
    )
