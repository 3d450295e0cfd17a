"""Which figures the pages show for each study, and the markup of a figure in light and dark."""

from __future__ import annotations

PICTURES = {
    "language-ptb": ("difference", "metric", "lr"),
    "language-enwik8": ("difference", "metric", "lr"),
    "gpt": ("difference", "lr", "metric"),
    "voc-camvid": ("difference", "metric", "train-loss"),
    "voc-tuning": ("difference", "metric", "lr"),
    "imagenet-tiny": ("difference", "metric", "train-loss"),
    "imagenet-tuning": ("lr",),
    "imagenet-tuned": ("difference", "metric"),
    "imagenet-tiny-resnet50": ("metric",),
}
"""Of a study whose runs are in records/; `adaxlab.report.charts` draws them."""
WORDS = {
    "metric": "Test metric during training, mean over seeds with its interval",
    "train-loss": "Training loss, mean over seeds with its interval",
    "lr": "Score of each learning rate tried",
    "difference": "Paired differences from the baseline with their intervals",
}
NAMES = frozenset(f"{study}-{kind}" for study, kinds in PICTURES.items() for kind in kinds)


def picture(name: str, alt: str, folder: str = "docs/images") -> str:
    return (
        f'<picture>\n  <source media="(prefers-color-scheme: dark)" srcset="{folder}/{name}-dark.svg">\n'
        f'  <img alt="{alt}" src="{folder}/{name}.svg">\n</picture>'
    )


def shown(study: str) -> str:
    """The study's figures, for a page in docs/."""
    return "\n\n".join(
        picture(f"{study}-{kind}", f"{WORDS[kind]}: {study}", "images") for kind in PICTURES[study]
    )
