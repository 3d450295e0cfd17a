"""One look per method, the same in every chart: a colour for light and dark paper, a dash, a point shape.

The colours were found by a search (maximise the smallest OKLab distance of any pair under normal vision and simulated
protanopia, deuteranopia and tritanopia, Machado et al. 2009), starting from Okabe and Ito's hues. Every colour has a
contrast of at least 3:1 to its paper (WCAG 1.4.11). Thirteen colours cannot all be far apart, so dash and shape
say the same a second time. `tests/lab/test_report.py` measures all of this.
"""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from dataclasses import dataclass

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
    """How one series is drawn: `light` and `dark` are its colours on white and on near-black paper."""

    light: str
    dark: str
    dash: tuple[int, ...] = SOLID
    shape: str = "circle"

    def on(self, theme: str) -> str:
        """The colour on the paper of that theme (`light` or `dark`)."""
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
    "padam": Look("#9e46c4", "#b977c2", (6, 3), "triangle-down"),
    "adax": Look("#da7c07", "#ffa91e", (6, 3), "circle"),
    "adaxw": Look("#c13a05", "#db4716", SOLID, "circle"),
    "padax": Look("#8a008c", "#a74ea2", SOLID, "triangle-down"),
}

_UNKNOWN = (
    Look("#7a6a00", "#d9c84a"),
    Look("#b0004e", "#ff7aa8"),
    Look("#00695c", "#57d2c0"),
    Look("#4b5d8a", "#9db2e8"),
)
_DASHES: tuple[tuple[int, ...], ...] = (SOLID, (6, 3), (2, 2), (6, 2, 2, 2), (10, 3), (4, 1, 1, 1))


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """A look for each label. A variant (`adaxw, lr=0.01`) keeps its method's hue; lightness, dash and shape change.

    Known methods do not depend on who else is in the list; names outside the zoo are given looks in order.

    >>> looks(["adamw", "adaxw"])["adaxw"] == looks(["adaxw"])["adaxw"]
    True
    """
    out: dict[str, Look] = {}
    seen: dict[str, int] = {}
    strangers: dict[str, int] = {}
    for label in labels:
        base = label.split(",")[0].strip()
        look = LOOKS.get(base)
        if look is None:
            i = strangers.setdefault(base, len(strangers))
            spare = _UNKNOWN[i % len(_UNKNOWN)]
            look = Look(
                spare.light, spare.dark, _DASHES[(i // len(_UNKNOWN)) % len(_DASHES)], SHAPES[i % len(SHAPES)]
            )
        i = seen.get(base, 0)
        seen[base] = i + 1
        if i:
            look = Look(
                _shade(look.light, 0.16 * ((i + 1) // 2) * (1 if i % 2 else -1), 0.22, 0.50),
                _shade(look.dark, 0.14 * ((i + 1) // 2) * (1 if i % 2 else -1), 0.48, 0.85),
                _DASHES[(_DASHES.index(look.dash) + i) % len(_DASHES)] if look.dash in _DASHES else SOLID,
                SHAPES[(SHAPES.index(look.shape) + i) % len(SHAPES)],
            )
        out[label] = look
    return out


def _shade(colour: str, by: float, low: float, high: float) -> str:
    """The colour with its lightness moved by `by`, kept between `low` and `high`."""
    r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    h, light, s = colorsys.rgb_to_hls(r, g, b)
    mixed = colorsys.hls_to_rgb(h, min(high, max(low, light + by)), s)
    return "#" + "".join(f"{round(255 * c):02x}" for c in mixed)
