"""The figures of a study on the pages, and the markup of a figure in light and dark."""

from __future__ import annotations

from adaxlab import spec
from adaxlab.study import Study

WORDS = {
    "seeds": "Final metric of every run",
    "metric": "Test metric during training",
    "train-loss": "Training loss",
    "lr": "Score of each learning rate tried",
    "sweep": "Final metric against the varied setting",
    "difference": "Paired differences with their intervals",
    "second-moment": "Mean of sqrt(v) during training",
}
"""The kinds of figures that `Study.figures` may name, and what they show."""


def names(study: Study) -> list[str]:
    """The files of the study's figures, without endings."""
    return [f"{spec.folder(study.name)}-{kind}" for kind in study.figures]


def image(name: str, alt: str, folder: str = "docs/images") -> str:
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">\n'
        f'  <img alt="{alt}" src="{folder}/{name}.svg">\n</picture>'
    )


def shown(study: Study) -> str:
    """The study's figures, for a page in docs/."""
    pairs = zip(names(study), study.figures, strict=True)
    return "\n\n".join(image(name, f"{WORDS[kind]}: {study.name}", "images") for name, kind in pairs)
