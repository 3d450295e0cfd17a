"""Check a built site: `python tools/site_links.py build/html`.

Every link and image leads to a file of the site, every anchor to an element of that page, and nothing is loaded from
a network. Links to other sites are allowed and not followed.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The ids of a page, what it links to (`href` of a, area) and what it loads (everything else)."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if not value:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.ids.add(value)
            elif name == "href" and tag in ("a", "area"):
                self.links.add(value)
            elif name in ("href", "src", "srcset", "poster", "data") and tag != "base":
                self.loads.add(value.split()[0] if name == "srcset" else value)


def problems(folder: Path) -> list[str]:
    """One line per broken link, missing anchor, or file that a page would load from a network."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve())
        if name.name == "404.html":  # served at any address, so its links begin at the server's root
            continue
        for target in sorted(page.links | page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    found.append(f"{name}: loads {target}")
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if there.is_dir():
                there = there / "index.html"
            if not there.is_file():
                found.append(f"{name}: no such file: {target}")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].ids:
                found.append(f"{name}: no such anchor: {target}")
    for path in sorted(folder.rglob("*.css")):
        for target in re.findall(r"url\(\s*[\"']?(https?:[^\"')]+)", path.read_text(encoding="utf-8")):
            found.append(f"{path.relative_to(folder)}: loads {target}")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print(
        "\n".join(wrong) or f"{sys.argv[1]}: every link leads somewhere",
        file=sys.stderr if wrong else sys.stdout,
    )
    sys.exit(bool(wrong))
