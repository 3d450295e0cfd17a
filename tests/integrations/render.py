"""Write the tables of docs/integrations.md from the records of `make test-integrations`, `test-oldest` and `test-gpu`.

python tests/integrations/render.py [--check]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "integrations.md"
RECORDS = ("integrations.json", "integrations_oldest.json", "integrations_gpu.json")
BEGIN = "<!-- table: begin (written by tests/integrations/render.py from records/{}) -->\n"
END = "<!-- table: end -->\n"


def table(rows):
    """framework x feature x tested version; a feature that failed says so instead of disappearing.

    >>> print(table([dict(framework="F", feature="x", tests=2, passed=2, versions={"f": "1.0"})]))
    | framework | feature | tests passed | tested with |
    |---|---|---|---|
    | F | x | 2 of 2 | f 1.0 |
    """
    lines = ["| framework | feature | tests passed | tested with |", "|---|---|---|---|"]
    before = None
    for row in sorted(rows, key=lambda r: (r["framework"].lower(), r["feature"])):
        first = row["framework"] if row["framework"] != before else ""
        before = row["framework"]
        versions = ", ".join(f"{name} {version}" for name, version in row["versions"].items())
        lines.append(f"| {first} | {row['feature']} | {row['passed']} of {row['tests']} | {versions} |")
    return "\n".join(lines)


def rows(record):
    return json.loads((ROOT / "records" / record).read_text())


def page(text):
    """The page with every table as its record says."""
    for record in RECORDS:
        begin = BEGIN.format(record)
        head, rest = text.split(begin)
        text = head + begin + table(rows(record)) + "\n" + END + rest.split(END, 1)[1]
    return text


def main():
    text = PAGE.read_text()
    new = page(text)
    if "--check" in sys.argv:
        sys.exit(0 if new == text else f"{PAGE} is not what its records say: run {__file__}")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
