"""Figures of the synthetic problems: Figure 3(a) with the positions, and regret on problem (3)."""

from __future__ import annotations

import altair as alt

from adaxlab.paper.theory import figure_style as style
from adaxlab.paper.theory.figure_style import AXIS, INK, NAMES, SOFT, Figure, Record, decades, log_axis, text
from adaxlab.report.encoding import data as rows

SHOWN_4 = ("sgdm", "sgdm, b1=0", "amsgrad", "adam", "adax")
SHOWN_3 = ("sgdm", "amsgrad", "nosadam", "adax", "adam, b2=0.999", "adam, b2=0.99", "adam, b2=0.1")
SIZE = 11.5
"""Font size of the labels."""


def figure_3a(record: Record) -> Figure:
    data = record["figure_3a"]
    by = {row["optimizer"]: row for row in data["rows"]}
    points = [
        {"optimizer": k, "t": t, "x": x, "u": u}
        for k in SHOWN_4
        for t, x, u in zip(data["at"], by[k]["positions"], by[k]["updates"], strict=True)
    ]
    hue = style.colour_of(SHOWN_4)
    steps = data["steps"]
    time = alt.X(**log_axis("t", "step", decades(1, 1e5), [1, steps]))
    size = alt.Y(**log_axis("u", "size of the update", decades(1e-6, 1e-2), [4e-7, 1.4e-2], "~e"))
    shift = {"sgdm": 7, "amsgrad": -7}

    def end(k: str) -> alt.Chart:
        u = by[k]["update_end"]
        point = {"optimizer": k, "t": steps, "u": u, "words": f"{NAMES[k]} {u:.1e}"}
        return text([point], time, size, hue, fontSize=SIZE, dx=7, dy=shift.get(k, 0), align="left")

    sizes = alt.layer(style.lines(points, time, size, hue), *map(end, SHOWN_4)).properties(
        width=300, height=280, title=style.panel_title("Update sizes: fed the gradient wherever x is")
    )
    height = alt.Y(
        "x:Q",
        title="position x",
        scale=alt.Scale(domain=[-0.22, 1.05], nice=False),
        axis=alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1], tickCount=9, labelOverlap=False),
    )
    zero = (
        alt.Chart(rows([{"x": 0, "words": "optimum"}])).mark_rule(color=INK, strokeWidth=1).encode(y=height)
    )
    crossing = {k: by[k]["crossing"] for k in SHOWN_4}
    dots = alt.Chart(rows([{"optimizer": k, "t": t, "x": 0.0} for k, t in crossing.items() if t]))

    def word(k: str, words: str, t: float, x: float = 0.0, **how: object) -> alt.Chart:
        return text(
            [{"optimizer": k, "t": t, "x": x, "words": words}], time, height, hue, fontSize=SIZE, **how
        )

    adax, adam, sgdm = (crossing[k] for k in ("adax", "adam", "sgdm"))
    places = alt.layer(
        zero,
        style.lines(points, time, height, hue, clip=True),
        dots.mark_point(filled=True, size=50, opacity=1).encode(x=time, y=height, color=hue),
        word("adax", f"AdaX, step {adax:,}", adax, dx=-8, dy=15, align="right"),
        word("adam", f"Adam, AMSGrad {adam:,}", adam, dx=-2, dy=26, align="left"),
        word("sgdm", f"SGDM {sgdm:,}", sgdm, dx=-2, dy=42, align="left"),
        word("sgdm, b1=0", "SGD", 9000, 0.42, dx=12, dy=0, align="left"),
    ).properties(
        width=300, height=280, title=style.panel_title("Positions: the problem as stated, optimum at 0")
    )
    return Figure(
        "figure-3a",
        "Small updates in the end, and past the optimum long before",
        alt.hconcat(sizes, places, spacing=175, bounds="flush").resolve_scale(color="shared"),
        SHOWN_4,
        "Problem (4), the paper's values: what Figure 3(a) shows, and where x went",
    )


def regret_curves(record: Record) -> Figure:
    three, rare = record["alternating"], record["rare"]
    hue = style.colour_of(SHOWN_3)

    def curves(data: Record, x: alt.X, y: alt.Y) -> alt.Chart:
        on_top = [row for row in data["rows"] if row["optimizer"] in SHOWN_3]
        on_top.sort(key=lambda row: row["optimizer"].startswith("ada") and "," not in row["optimizer"])
        points = [
            {"optimizer": row["optimizer"], "t": t, "regret": r}
            for row in on_top
            for t, r in zip(data["at"], row["regret"], strict=True)
            if t >= 10
        ]
        return style.lines(points, x, y, hue)

    x3 = alt.X(**log_axis("t", "step", decades(10, three["steps"]), [10, three["steps"]]))
    y3 = alt.Y(**log_axis("regret", "average regret", [1e-4, 1e-3, 1e-2, 0.1, 1], [1.5e-4, 1.3], "~g"))
    regret = {row["optimizer"]: row["regret"] for row in three["rows"]}
    at = three["at"].index(min(three["at"], key=lambda t: abs(t - 3000)))

    def beside(k: str, words: str, hue: alt.Color | None = hue, **how: object) -> alt.Chart:
        point = {"optimizer": k, "t": three["at"][at], "regret": regret[k][at], "words": words}
        return text([point], x3, y3, hue, fontSize=SIZE, **how)

    left = alt.layer(
        curves(three, x3, y3),
        beside("adam, b2=0.1", "Adam, b2 = 0.1", dy=-11),
        beside("sgdm", "SGD", dx=-9, dy=10, align="right"),
        beside("adax", "AdaX; on the same line", dx=18, dy=-19, align="left"),
        beside("adax", "AMSGrad, NosAdam and", None, color=SOFT, dx=18, dy=-4, align="left"),
        beside("adax", "Adam with b2 = 0.99, 0.999", None, color=SOFT, dx=18, dy=11, align="left"),
    ).properties(
        width=320, height=280, title=style.panel_title("Problem (3): slope 3 every third step, else -1")
    )

    xr = alt.X(**log_axis("t", "step", decades(10, rare["steps"]), [10, rare["steps"]]))
    yr = alt.Y(
        "regret:Q",
        title="average regret",
        scale=alt.Scale(domain=[0, 0.46], nice=False),
        axis=alt.Axis(values=[0, 0.1, 0.2, 0.3, 0.4], tickCount=9),
    )
    last = {row["optimizer"]: row["regret"][-1] for row in rare["rows"]}

    def end(k: str, words: str, dy: int) -> alt.Chart:
        point = {"optimizer": k, "t": rare["steps"], "regret": last[k], "words": words}
        return text([point], xr, yr, hue, fontSize=SIZE, dx=7, dy=dy, align="left")

    worst = (
        alt.Chart(rows([{"regret": 2 * rare["mean_gradient"]}]))
        .mark_rule(color=AXIS, strokeDash=[2, 3])
        .encode(y=yr)
    )
    right = alt.layer(
        worst,
        curves(rare, xr, yr),
        end("adam, b2=0.1", "Adam, b2 = 0.1", -11),
        end("adam, b2=0.99", "Adam, b2 = 0.99", 4),
        end("adam, b2=0.999", "Adam, b2 = 0.999", 5),
        end("amsgrad", "AMSGrad", -5),
        end("adax", "AdaX, NosAdam", 4),
        end("sgdm", "SGD", 18),
    ).properties(
        width=320, height=280, title=style.panel_title("Rare: slope 1010 with chance 0.01, else -10")
    )
    return Figure(
        "reddi",
        "When Adam goes the wrong way, and who does not",
        alt.hconcat(left, right, spacing=34).resolve_scale(color="shared"),
        SHOWN_3,
        "A line that stays up is a method that does not converge",
    )
