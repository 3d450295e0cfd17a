"""The look of each method, the same in every chart: a colour for light and dark backgrounds, a dash, a point shape.

The colours were found by a search (maximise the smallest OKLab distance of any pair under normal vision and simulated
protanopia, deuteranopia and tritanopia, Machado et al. 2009), starting from Okabe and Ito's hues. Every colour has a
contrast of at least 3:1 to its background (WCAG 1.4.11). So many colours cannot all be easily distinguished; dash and
shape therefore also identify the method. A method that is not listed here gets a look like a user's own optimizer.
`tests/lab/test_report_palette.py` tests these properties.
"""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterable
from dataclasses import dataclass

from adaxlab.report.names import parts

PAPER = {"light": "#ffffff", "dark": "#16181d"}

SOLID: tuple[int, ...] = (1, 0)
SHAPES = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "cross",
    "triangle-right",
    "triangle-left",
)


@dataclass(frozen=True)
class Look:
    """How one series is drawn: `light` and `dark` are its colours on a white and a near-black background."""

    light: str
    dark: str
    dash: tuple[int, ...] = SOLID
    shape: str = "circle"

    def on(self, theme: str) -> str:
        """The colour in a theme (`light` or `dark`)."""
        return self.dark if theme == "dark" else self.light


LOOKS: dict[str, Look] = {
    "sgdm": Look("#483a39", "#c2c1ab", SOLID, "square"),
    "adagrad": Look("#1c4366", "#998eff", (2, 2), "triangle-left"),
    "rmsprop": Look("#5b949e", "#4cc3e6", (6, 2, 2, 2), "cross"),
    "adam": Look("#0097ff", "#86e3ff", (6, 3), "triangle-up"),
    "adamw": Look("#1208d8", "#4562f1", SOLID, "triangle-up"),
    "amsgrad": Look("#8a996b", "#c2f1ba", (6, 3), "diamond"),
    "amsgradw": Look("#1f8178", "#08a980", SOLID, "diamond"),
    "adashift": Look("#626e41", "#fce15a", (2, 2), "triangle-right"),
    "nosadam": Look("#6b3e00", "#e9752a", (6, 2, 2, 2), "cross"),
    "adamnx": Look("#7d44fe", "#4d6d62", (10, 3), "square"),
    "padam": Look("#9e46c4", "#b977c2", (6, 3), "triangle-down"),
    "adax": Look("#da7c07", "#ffa91e", (6, 3), "circle"),
    "adaxw": Look("#c13a05", "#db4716", SOLID, "circle"),
    "padax": Look("#8a008c", "#a74ea2", SOLID, "triangle-down"),
}

FEW = 6
"""Up to this number of variants, their hues are in their order."""
_UNKNOWN = (
    Look("#7a6a00", "#d9c84a"),
    Look("#b0004e", "#ff7aa8"),
    Look("#00695c", "#57d2c0"),
    Look("#4b5d8a", "#9db2e8"),
)
_DASHES: tuple[tuple[int, ...], ...] = (SOLID, (6, 3), (2, 2), (6, 2, 2, 2), (10, 3), (4, 1, 1, 1))


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """A look for each label. Variants (`adaxw, lr=0.01`, `adaxw@slow`) have hues around that of their method.

    The look of a method of the zoo does not depend on the other labels, and torch's optimizers (`torch:AdamW`) have the
    look of the method that they implement. Variants and other names get looks in their order.

    >>> looks(["adamw", "adaxw"])["adaxw"] == looks(["adaxw"])["adaxw"] != looks(["adaxw", "adaxw@slow"])["adaxw@slow"]
    True
    >>> looks(["torch:AdamW"])["torch:AdamW"] == LOOKS["adamw"]
    True
    """
    names = list(dict.fromkeys(labels))
    meaning = {label: parts(label) for label in names}
    plain: dict[str, str] = {}
    for label, (method, rest) in meaning.items():
        if label == method or (not rest and method not in names):
            plain.setdefault(method, label)
    out: dict[str, Look] = {}
    strangers: dict[str, int] = {}
    for label, (method, _) in meaning.items():
        look = LOOKS.get(method)
        if look is None:
            i = strangers.setdefault(method, len(strangers))
            spare, dash = _UNKNOWN[i % len(_UNKNOWN)], _DASHES[i // len(_UNKNOWN) % len(_DASHES)]
            look = Look(spare.light, spare.dark, dash, SHAPES[i % len(SHAPES)])
        if label != plain.get(method):
            family = [n for n in names if meaning[n][0] == method and n != plain.get(method)]
            beside = method in plain and any(not n.startswith(f"{method},") for n in family)
            look = _variant(look, family.index(label), len(family), beside)
        out[label] = look
    return out


def _variant(look: Look, i: int, n: int, beside: bool) -> Look:
    """The look of the i-th of n variants: hues from -60 to +60 degrees around the method's, cycling dash and shape.

    With `beside`, the method itself is in the same charts, and no variant has its hue. Of many variants, those that
    follow each other, which are often in one chart, have hues far apart.
    """
    step = next(k for k in range(round(0.62 * n), n) if math.gcd(k, n) == 1) if n > FEW else 1
    turn = i * step % n
    if beside and n % 2:
        place = (turn + 1) / n
    else:
        place = 0.5 if n == 1 else turn / (n - 1)
    light = _tint(look.light, (place - 0.5) / 3, 0.25 + 0.22 * place, PAPER["light"])
    dark = _tint(look.dark, (place - 0.5) / 3, 0.50 + 0.25 * place, PAPER["dark"])
    dashes = [dash for dash in _DASHES if dash != look.dash] if beside else _DASHES[1:] + _DASHES[:1]
    return Look(light, dark, dashes[i % len(dashes)], SHAPES[(i + 1) % len(SHAPES)])


def _tint(colour: str, turn: float, lightness: float, paper: str) -> str:
    """The colour with its hue rotated and its lightness set, then adjusted to a contrast of 3.2 with the background."""
    hue, _, saturation = colorsys.rgb_to_hls(*_rgb(colour))
    away = -0.01 if _luminance(paper) > 0.5 else 0.01
    while True:
        mixed = colorsys.hls_to_rgb(
            (hue + turn) % 1, lightness, saturation if saturation < 0.2 else max(0.55, saturation)
        )
        made = "#" + "".join(f"{round(255 * c):02x}" for c in mixed)
        low, high = sorted((_luminance(made), _luminance(paper)))
        if (high + 0.05) / (low + 0.05) >= 3.2 or not 0.02 < lightness < 0.98:
            return made
        lightness += away


def _rgb(colour: str) -> tuple[float, float, float]:
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return r, g, b


def _luminance(colour: str) -> float:
    """The relative luminance of WCAG 2."""
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _rgb(colour))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
