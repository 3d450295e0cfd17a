"""Write the tables of docs/integrations.md from records/: of test-integrations, test-oldest, test-newest and test-gpu.

python tests/integrations/render.py [--check]
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "integrations.md"
RECORDS = ("integrations.json", "integrations_oldest.json", "integrations_gpu.json")
RELEASES = "torch_releases.json"
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


def releases(lines):
    """One row for each release of torch that the suite was run on."""
    out = ["| torch | Triton | NumPy | Python | passed | failed | skipped |", "|---|---|---|---|---|---|---|"]
    for line in lines:
        versions = " | ".join(line["versions"][name] for name in ("torch", "triton", "numpy", "python"))
        failed = line["failed"] + line["error"]
        out.append(f"| {versions} | {line['passed']:,} | {failed:,} | {line['skipped']:,} |")
    return "\n".join(out)


def rows(record):
    return json.loads((ROOT / "records" / record).read_text())


def page(text):
    """The page with every table as its record says."""
    for record in (*RECORDS, RELEASES):
        begin = BEGIN.format(record)
        head, rest = text.split(begin)
        made = (releases if record == RELEASES else table)(rows(record))
        text = head + begin + made + "\n" + END + rest.split(END, 1)[1]
    return text


def main():
    text = PAGE.read_text()
    new = page(text)
    if "--check" in sys.argv:
        sys.exit(0 if new == text else f"{PAGE} is not what its records say: run {__file__}")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
