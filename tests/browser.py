"""A page in a real browser for tests: every request, message and error of it is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
browsers = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser process."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_api.sync_playwright() as driver:
        process = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield process
        process.close()


class Opened:
    """A page in a tab of its own; on leaving it must have said nothing and asked no network for anything."""

    def __init__(self, browser, path, width=1280, height=900, ready=None, **options):
        self.context = browser.new_context(viewport={"width": width, "height": height}, **options)
        self.page = self.context.new_page()
        self.said, self.asked = [], []
        self.page.on("console", lambda m: self.said.append(f"{m.type}: {m.text}"))
        self.page.on("pageerror", lambda e: self.said.append(f"error: {e}"))
        self.page.on("dialog", lambda d: (self.said.append(f"dialog: {d.message}"), d.dismiss()))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(path.as_uri())
        if ready:
            self.page.wait_for_function(ready, timeout=300_000)

    def __enter__(self):
        return self.page

    def __exit__(self, *error):
        self.context.close()
        if error[0] is None:
            assert self.said == [], self.said
            assert [u for u in self.asked if not u.startswith(("file:", "data:", "blob:"))] == []
