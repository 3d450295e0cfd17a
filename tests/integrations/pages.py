"""Code blocks of the documentation's pages, so that tests can run them."""

import re
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"


class Block(NamedTuple):
    language: str
    options: dict
    heading: str
    text: str


def blocks(page):
    """Fenced blocks of a page with the heading they stand under: ```python file=train.py

    >>> [b.options["file"] for b in blocks("distributed.md") if "file" in b.options]
    ['train.py', 'replicas.py']
    """
    heading, found, lines = "", [], iter((DOCS / page).read_text().splitlines())
    for line in lines:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        opened = re.fullmatch(r"```(\w+)(.*)", line)
        if opened:
            text = []
            for inner in lines:
                if inner == "```":
                    break
                text.append(inner)
            options = dict(word.split("=", 1) for word in opened[2].split())
            found.append(Block(opened[1], options, heading, "\n".join(text) + "\n"))
    return found


def write_files(page, folder):
    for block in blocks(page):
        if "file" in block.options:
            (Path(folder) / block.options["file"]).write_text(block.text)


def command(page, name):
    (block,) = (b for b in blocks(page) if b.options.get("run") == name)
    return block.text.split()
