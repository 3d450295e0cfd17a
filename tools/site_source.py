"""Write the source of the documentation site to build/site: `python tools/site_source.py` (`make site` builds it).

The pages of docs/ are copied. README.md becomes the front page; CHANGELOG.md and other files of the repository's root
become pages. The API reference lists the public names of each module (`__all__`, or its public classes and functions),
found by reading the source; the command-line reference comes from the parser of `adax`. The result is plain Markdown
with blocks for mkdocstrings, so that any tool that reads mkdocs.yml can build it.
"""

from __future__ import annotations

import argparse
import ast
import html
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, get_args, get_type_hints
from unittest.mock import patch

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "site"
FROM_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
}
DESCRIBED = {
    "src/adaxopt/torch/optimizers.py": "api/torch.md",
    "src/adaxopt/jax/optimizers.py": "api/jax.md",
    "src/adaxopt/keras.py": "api/keras.md",
}
"""Source that pages link to, and the page of the API reference that shows its docstrings."""
PLACES = {ROOT / name: place for name, place in (FROM_ROOT | DESCRIBED | {"examples": "examples.md"}).items()}
LAB = (
    "task",
    "study",
    "compare",
    "optimizers",
    "schedule",
    "store",
    "summary",
    "stats",
    "claim",
    "measures",
    "judge",
    "report",
)
API = {
    "torch": ("PyTorch", "`import adaxopt`. The same names are in `adaxopt.torch`.", ("adaxopt",)),
    "jax": ("JAX", "Optax transformations.", ("adaxopt.jax",)),
    "keras": ("Keras", "Keras 3 optimizers, on every backend.", ("adaxopt.keras",)),
    "integrations": ("Trainers", "Names for other libraries.", ("adaxopt.integrations",)),
    "mathematics": (
        "The mathematics",
        "Gains, the update and the table of methods. These modules need the standard library only.",
        ("adaxopt.memory", "adaxopt.rule", "adaxopt.zoo"),
    ),
    "lab": (
        "The lab",
        "The package behind the command `adax`.",
        tuple(f"adaxlab.{name}" for name in LAB),
    ),
}
"""Page of the API reference: its title, a sentence, and the modules whose public names it shows."""


def source(module: str) -> Path:
    """The file that holds a module."""
    path = ROOT / "src" / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public(module: str) -> list[str]:
    """The public names of a module: `__all__`, or else its classes and functions without a leading underscore."""
    tree = ast.parse(source(module).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [str(name) for name in ast.literal_eval(node.value)]
    kinds = (ast.ClassDef, ast.FunctionDef)
    return [n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]


def api_pages() -> Iterator[tuple[str, str]]:
    """(path, text) of every page of the API reference."""
    for page, (title, sentence, modules) in API.items():
        parts = [f"# {title}\n\n{sentence}\n"]
        level = 2
        for module in modules:
            if len(modules) > 1:
                parts.append(f"::: {module}\n    options:\n      members: []\n")
                level = 3
            parts += [
                f"::: {module}.{name}\n    options:\n      heading_level: {level}\n"
                for name in public(module)
            ]
        yield f"api/{page}.md", "\n".join(parts)


def commands(kind: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command under a union of annotated dataclasses, in order."""
    for choice in get_args(kind):
        name = next(m.name for m in choice.__metadata__ if getattr(m, "name", None))
        yield (*words, name)
        for inner in get_type_hints(choice.__origin__, include_extras=True).values():
            if any(hasattr(c, "__metadata__") for c in get_args(inner)):
                yield from commands(inner, (*words, name))


def help_of(words: tuple[str, ...]) -> str:
    """What `adax ... --help` prints, on lines wide enough that nothing is broken."""
    from adaxlab.commands import parse

    text = io.StringIO()
    with patch.dict(os.environ, {"COLUMNS": "600"}), redirect_stdout(text), suppress(SystemExit):
        parse([*words, "--help"])
    return re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue())


def command_section(words: tuple[str, ...]) -> str:
    """The help of one command: its usage, its sentence, and a table of its arguments."""
    usage, _, rest = help_of(words).partition("\n\n")
    description, *panels = re.split(r"^ (\w[\w ]*?) *\n -{3,} *$", rest, flags=re.M)
    parts = [f"## {' '.join(('adax', *words))}", f"```text\n{usage.strip()}\n```", description.strip()]
    for title, body in zip(panels[::2], panels[1::2], strict=True):
        if title == "subcommands":
            continue  # each has its own section
        rows: list[list[str]] = []
        for line in filter(str.strip, body.splitlines()):
            if line.startswith("   "):  # the help of a long option stands on a line of its own
                rows[-1][1] += " " + line.strip()
            else:
                name, _, told = line.strip().partition("  ")
                rows.append([name, told.strip()])
        if shown := [_table_row(row) for row in rows if not row[0].startswith("-h,")]:
            parts.append(f"| {title} | |\n|---|---|\n" + "\n".join(shown))
    return "\n\n".join(filter(None, parts)) + "\n"


def _table_row(row: list[str]) -> str:
    name, told = (cell.strip().replace("|", "\\|") for cell in row)
    return f"| `{name}` | {html.escape(told, quote=False).replace('*', '&#42;')} |"


def command_page() -> str:
    """The command-line reference."""
    from adaxlab.commands import Command

    start = "# Command line\n\nGenerated from the parser: what `--help` of each command prints.\n"
    return "\n".join([start, *(command_section(words) for words in commands(Command))])


def examples_page() -> str:
    """The programs of examples/: what each says of itself, and its code."""
    parts = ["# Examples\n\nComplete programs, in the folder `examples/`. The tests run each of them.\n"]
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text()
        tree = ast.parse(code)
        title, _, rest = (ast.get_docstring(tree) or "").partition("\n\n")
        after = "\n".join(code.splitlines()[tree.body[0].end_lineno :]).strip()
        parts.append(
            f"## {path.name}\n\n{title}\n\n```text\n{rest.strip()}\n```\n\n```python\n{after}\n```\n"
        )
    return "\n".join(parts)


LETTERS = {"growing": ", b2 = {:g}", "fading": ", b2 = {:g}", "equal": "", "power": ", c = {:g}"}
"""Kinds of memory that are a point of the page's plane, and how a label names their number."""


def memory_data() -> str:
    """The script that gives docs/memory-explorer.md its data: recorded gradients, and the memories of the zoo."""
    from adaxlab.report.names import TITLES
    from adaxopt.zoo import METHODS

    found: dict[tuple[str, float], dict[float, str]] = {}
    for name, method in METHODS.items():
        if method.rule.memory is None:
            continue
        kind = {"unnormalised": "fading"}.get(method.rule.memory.kind, method.rule.memory.kind)
        exact = 0.0 if kind == "equal" else method.defaults["betas"][1]
        near = 1 - float(f"{1 - exact:.2g}") if kind == "fading" else float(f"{exact:.2g}")
        found.setdefault((kind, near), {}).setdefault(
            exact, TITLES.get(name, name)
        )  # AdamNX lies beside AdaX
    methods = []
    for (kind, value), names in found.items():
        if kind in LETTERS:
            short = ", ".join(sorted(names.values()))
            label = short + LETTERS[kind].format(value)
            methods.append({"short": short, "label": label, "kind": kind, "value": value})
    methods.append({"short": "AdaX 3/T", "label": "AdaX, b2 = 3/T", "kind": "over", "value": 3})
    recorded = json.loads((ROOT / "records" / "memory" / "gradients.json").read_text())
    return f"const ADAX_MEMORY = {json.dumps({'recorded': recorded, 'methods': methods})};\n"


PICTURE = re.compile(
    r'<picture>\s*<source [^>]*srcset="([^"]+)">\s*<img alt="([^"]*)" src="([^"]+)">\s*</picture>', flags=re.S
)


def page(text: str, at: Path, names: set[Path]) -> str:
    """A page's text for the site: figures that follow the theme, links to where the files are now."""
    text = PICTURE.sub(r"![\2](\3#only-light)![\2](\1#only-dark)", text)
    text = re.sub(r"^```(\w+) [^\n`]+$", r"```\1", text, flags=re.M)  # what tests read of a block

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if re.match(r"[a-z]+:", target):
            return match[0]
        there = (at.parent / target).resolve()
        if there in PLACES:
            return f"[{words}]({PLACES[there]}{anchor})"
        if there.is_relative_to(ROOT / "docs"):
            return f"[{words}]({there.relative_to(ROOT / 'docs').as_posix()}{anchor})"
        if there.is_file() and there.is_relative_to(ROOT / "records"):
            names.add(there)
            return f"[{words}]({there.relative_to(ROOT).as_posix()}{anchor})"
        return words  # a folder, or code: not part of the site

    return re.sub(r"\[([^\[\]]*)\]\(([^()#\s]+)(#[^()\s]*)?\)", link, text)


def write(out: Path = OUT) -> None:
    """Write the site's source to `out`, anew."""
    shutil.rmtree(out, ignore_errors=True)
    records: set[Path] = set()
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file():
            there = out / path.relative_to(ROOT / "docs")
            there.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                there.write_text(page(path.read_text(), path, records))
            else:
                shutil.copyfile(path, there)
    for name, place in FROM_ROOT.items():
        if (ROOT / name).exists():
            (out / place).write_text(page((ROOT / name).read_text(), ROOT / name, records))
    for path in records:
        there = out / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, there)
    (out / "api").mkdir()
    for place, text in api_pages():
        (out / place).write_text(text)
    (out / "cli.md").write_text(command_page())
    (out / "examples.md").write_text(examples_page())
    (out / "assets" / "memory-data.js").write_text(memory_data())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    sys.path.insert(0, str(ROOT / "src"))
    write(parser.parse_args().out)
