"""Griffe extension of the documentation site: docstrings as Python sees them, and doctests as code blocks.

Griffe reads source without importing it, so it does not see a docstring that is assembled at import
(`__doc__ = "..." + _SHARED`, or `name.__doc__ = f"..."` after a function). This extension evaluates such expressions
of strings. It also fences `>>>` examples, which Markdown would take for quotations, and gives arguments that share a
description an entry each, and keeps Markdown from reading a product as emphasis.
"""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import griffe


def text_of(node: ast.expr, known: dict[str, str]) -> str | None:
    """The value of an expression of strings, or None where it is anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return joined([text_of(node.left, known), text_of(node.right, known)])
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, known) if node.format_spec is None else None
    if isinstance(node, ast.JoinedStr):
        return joined([text_of(part, known) for part in node.values])
    return None


def joined(parts: list[str | None]) -> str | None:
    return None if None in parts else "".join(filter(None, parts))


def assembled(tree: ast.Module) -> dict[str, str]:
    """Docstrings that a module assigns: of a class in its body, of any name by `name.__doc__ = ...`."""
    known: dict[str, str] = {}
    found: dict[str, str] = {}

    def read(body: list[ast.stmt], owner: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                read(node.body, node.name)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = ast.unparse(node.targets[0]), text_of(node.value, known)
                if value is None:
                    continue
                if target == "__doc__" and owner:
                    found[owner] = value
                elif target.endswith(".__doc__"):
                    found[target.removesuffix(".__doc__")] = value
                elif not owner:
                    known[target] = value

    read(tree.body, "")
    return found


def fenced(text: str) -> str:
    """Docstring with every `>>>` example, up to the next empty line, in a code block."""
    example = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", flags=re.M)
    return example.sub(lambda m: f"{m[1]}```pycon\n{m[0]}\n{m[1]}```", text)


def escaped(text: str) -> str:
    """Docstring whose products and powers (`b2*T`, `10**9`) stay so in Markdown; code is left alone."""
    out: list[str] = []
    fence = code = section = False
    blank = True
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fence = not fence
        elif line and not line.startswith(" "):
            section = bool(re.fullmatch(r"[A-Z][a-z]+:", line))
        code = line.startswith("    ") and not section and (blank or code)
        if not fence and not code:
            parts = re.split(r"(`[^`]*`)", line)
            parts[::2] = [re.sub(r"(?<=[\w)\]])(\*\*?)(?=[\w(-])", _backslashed, part) for part in parts[::2]]
            line = "".join(parts)
        out.append(line)
        blank = not line.strip()
    return "\n".join(out)


def _backslashed(match: re.Match[str]) -> str:
    return match[1].replace("*", "\\*")


def split(text: str) -> str:
    """Docstring in which arguments that share a description (`b1, b2: ...`) are one each, as griffe wants them."""
    shared = re.compile(r"^( +)(\w+)((?:, \w+)+): (.*(?:\n\1 +.*)*)", flags=re.M)

    def one_each(m: re.Match[str]) -> str:
        others = "".join(f"\n{m[1]}{name}: see `{m[2]}`." for name in m[3].split(", ")[1:])
        return f"{m[1]}{m[2]}: {m[4]}{others}"

    start, heading, arguments = text.partition("Args:\n")
    return start + heading + shared.sub(one_each, arguments)


class Docstrings(griffe.Extension):
    """See the module's docstring."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        self._module(pkg)

    def _module(self, module: griffe.Module) -> None:
        if isinstance(module.filepath, list):
            return
        own = assembled(ast.parse(module.filepath.read_text()))
        for name, text in own.items():
            if name in module.members and not module.members[name].is_alias:
                module.members[name].docstring = griffe.Docstring(
                    inspect.cleandoc(text), parent=module.members[name]
                )
        self._members(module)

    def _members(self, parent: Any) -> None:
        if parent.docstring:
            parent.docstring.value = split(escaped(fenced(parent.docstring.value)))
        for member in parent.members.values():
            if member.is_alias:
                continue
            if member.is_module:
                self._module(member)
            else:
                self._members(member)
