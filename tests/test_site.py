"""The documentation site: it builds without a warning, shows every public name, and needs no network."""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from browser import Opened, browsers, chromium

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import site_links  # noqa: E402
import site_source as site  # noqa: E402


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site, built as `make site` builds it, in a folder of its own."""
    pytest.importorskip("mkdocs", reason="needs the extra docs: pip install 'adaxopt[docs]'")
    pytest.importorskip("tyro", reason="needs the extra lab: pip install 'adaxopt[lab]'")
    source, out = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("html")
    site.write(source)
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env={**os.environ, "ADAX_SITE_SOURCE": str(source), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out


@pytest.fixture(scope="module")
def browser():
    with chromium() as process:
        yield process


def names(built):
    """{name: address} of what the API reference describes (its inventory, as Sphinx reads it)."""
    data = (built / "objects.inv").read_bytes()
    lines = zlib.decompress(data.split(b"\n", 4)[4]).decode().splitlines()
    found = (re.match(r"(\S+) py:\S+ -?\d+ (\S+)", line) for line in lines)
    return {m[1]: m[2].replace("$", m[1]) for m in found if m}


def test_every_public_name_is_in_the_reference(built):
    described = names(built)
    for _, _, modules in site.API.values():
        for module in modules:
            for name in site.public(module):
                assert f"{module}.{name}" in described, f"{module}.{name}"


def test_the_reference_knows_what_python_calls_public():
    """Names found by reading the source are the names that an import gives."""
    for module in ("adaxopt", "adaxopt.torch", "adaxopt.integrations", "adaxlab.compare", "adaxlab.report"):
        imported = pytest.importorskip(module)
        assert site.public(module) == imported.__all__, module
    own = importlib.import_module("adaxlab.stats")
    defined = [
        name
        for name, value in vars(own).items()
        if callable(value) and getattr(value, "__module__", "") == own.__name__ and not name.startswith("_")
    ]
    assert site.public("adaxlab.stats") == defined


def test_every_page_of_the_library_with_public_names_is_shown():
    """A new public module must be given a page: the names of every package of adaxopt, and of every module beside
    them that has `__all__`, are in the reference."""
    shown = {name for _, _, modules in site.API.values() for m in modules for name in site.public(m)}
    package = ROOT / "src" / "adaxopt"
    for path in sorted([*package.glob("*.py"), *package.glob("*/__init__.py")]):
        text = path.read_text()
        if "\n__all__ = " not in text:
            continue
        parts = path.relative_to(ROOT / "src").with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        assert set(site.public(module)) <= shown, module


def test_every_name_of_the_library_has_its_docstring_on_the_page(built):
    """Also docstrings that are put together when the module is imported, which a reader of source does not see."""
    for page in ("torch", "jax", "keras", "integrations"):
        text = (built / "api" / f"{page}.html").read_text()
        for module in site.API[page][2]:
            for name in site.public(module):
                block = re.search(
                    rf'id="{re.escape(module)}\.{name}".*?(<div class="doc doc-contents.*?)(?=<h2|</article>)',
                    text,
                    re.S,
                )
                assert block, f"{module}.{name}"
                assert re.search(r"<p>\w[^<]{10,}", block[1]), f"{module}.{name}: no docstring"


def test_parameters_are_listed_one_by_one(built):
    text = re.sub(r"<[^>]+>", "", (built / "api" / "torch.html").read_text())
    for name in ("lr", "betas", "weight_decay", "decay", "foreach", "fused", "wake", "state_dtype"):
        assert re.search(rf"^\s*{name}\s*\(", text, re.M), name


def test_products_and_powers_are_not_read_as_emphasis(built):
    mathematics = re.sub(r"<[^>]+>", "", (built / "api" / "mathematics.html").read_text())
    assert "(1+b2)**t is never computed" in mathematics
    for page in (built / "api").glob("*.html"):
        article = page.read_text().partition("<article")[2].partition("</article>")[0]
        assert not re.search(r"[\w)]<(em|strong)>|</(em|strong)>[\w(]", article), page.name


def test_every_command_and_option_is_in_the_reference(built):
    from adaxlab import commands

    text = re.sub(r"<[^>]+>", "", (built / "cli.html").read_text())
    for words in site.commands(commands.Command):
        assert f"adax {' '.join(words)}" in text
    for field in dataclasses.fields(commands.Compare):
        if not str(field.type).startswith("Positional"):
            assert f"--{field.name.replace('_', '-')}" in text, field.name


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_a_network(built):
    assert site_links.problems(built) == []


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ('<a href="gone.html">', "no such file: gone.html"),
        ('<a href="#gone">', "no such anchor: #gone"),
        ('<img src="gone.png">', "no such file: gone.png"),
        ('<script src="https://example.org/x.js">', "loads https://example.org/x.js"),
        ('<a href="https://example.org">', None),
        ('<a href="page.html#here"><p id="here">', None),
    ],
)
def test_the_link_check_finds_what_is_broken(tmp_path, page, problem):
    (tmp_path / "page.html").write_text(page)
    assert site_links.problems(tmp_path) == ([f"page.html: {problem}"] if problem else [])


def test_source_that_has_a_page_of_the_reference_is_there():
    assert [name for name in site.DESCRIBED if not (ROOT / name).is_file()] == []


def test_pages_are_rewritten_for_the_site():
    records = set()
    links = "[a](docs/method.md#x) [b](records/cpu_step.json) [c](src/adaxopt) [d](https://x.org)"
    links += " [e](src/adaxopt/keras.py)"
    text = site.page(f"{links}\n```python file=a.py\n```", ROOT / "README.md", records)
    assert (
        text
        == "[a](method.md#x) [b](records/cpu_step.json) c [d](https://x.org) [e](api/keras.md)\n```python\n```"
    )
    assert records == {ROOT / "records" / "cpu_step.json"}
    dark, light = (
        '<source media="m" srcset="docs/images/a-dark.svg">',
        '<img alt="A" src="docs/images/a.svg">',
    )
    figure = f"<picture>\n  {dark}\n  {light}\n</picture>"
    assert site.page(figure, ROOT / "README.md", records) == (
        "![A](images/a.svg#only-light)![A](images/a-dark.svg#only-dark)"
    )


@browsers
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_pages_fit_and_ask_no_network(built, browser, width, scheme):
    for name in ("index", "api/torch", "cli", "gpt", "memory-explorer"):
        with Opened(browser, built / f"{name}.html", width=width, color_scheme=scheme) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            shown = page.evaluate("getComputedStyle(document.body).backgroundColor")
            light = sum(map(int, re.findall(r"\d+", shown)[:3])) > 384
            assert light == (scheme == "light")


@browsers
def test_no_table_is_cut_off_on_a_desktop(built, browser):
    wide = "[...document.querySelectorAll('.md-typeset__scrollwrap')].filter(t => t.scrollWidth > t.clientWidth + 1)"
    for name in ("index", "reproduction", "should-i-use-adax", "cifar10", "speed", "claims"):
        with Opened(browser, built / f"{name}.html") as page:
            assert page.evaluate(f"{wide}.map(t => t.innerText.slice(0, 80))") == [], name


@browsers
def test_the_memory_explorer_runs_and_has_a_static_form(built, browser):
    path = built / "memory-explorer.html"
    with Opened(browser, path, ready="document.getElementById('memory-explorer').dataset.ready") as page:
        assert page.locator("#memory-explorer svg path.line").count() > 6
    with Opened(browser, path, java_script_enabled=False) as page:
        assert page.locator("#memory-explorer img").first.is_visible()
        assert "needs JavaScript" in page.locator("#memory-explorer").inner_text()


@browsers
def test_search_finds_a_name_from_disk(built, browser):
    with Opened(browser, built / "index.html") as page:
        page.get_by_role("textbox", name="Search").fill("restart_memory")
        result = page.locator(".md-search-result__link[href*='api/torch.html#adaxopt.AdaX.restart_memory']")
        result.first.wait_for(state="attached")
