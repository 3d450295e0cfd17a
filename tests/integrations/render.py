"""Write the table of docs/integrations.md from records/integrations.json (`make test-integrations` does both).

python tests/integrations/render.py [--check]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "records" / "integrations.json"
PAGE = ROOT / "docs" / "integrations.md"
BEGIN = "<!-- table: begin (written by tests/integrations/render.py from records/integrations.json) -->\n"
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


def page(text, rows):
    head, rest = text.split(BEGIN)
    return head + BEGIN + table(rows) + "\n" + END + rest.split(END)[1]


def main():
    text, rows = PAGE.read_text(), json.loads(RECORD.read_text())
    new = page(text, rows)
    if "--check" in sys.argv:
        sys.exit(0 if new == text else f"{PAGE} is not what {RECORD} says: run {__file__}")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
