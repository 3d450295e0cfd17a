"""Files that maintainers and hosts read: they agree with the package and with each other."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import adaxopt

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def targets():
    """What `make` can make."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M))


def test_the_version_is_written_once():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "adaxopt.__version__"}
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), flags=re.M)
    assert cited[1] == adaxopt.__version__
    assert f"## {adaxopt.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".ci" / "run"], ids=lambda p: p.name)
def test_every_command_of_ci_is_a_target_of_make(path):
    commands = re.findall(r"^(?:\s*- run: )?make ([a-z -]+?)\s*(?:#.*)?$", path.read_text(), flags=re.M)
    asked = {word for line in commands for word in line.split()}
    assert asked or path.name == "release.yml"
    assert asked <= targets()


def test_the_workflows_run_everything_that_ci_runs():
    here = (ROOT / ".ci" / "run").read_text()
    there = "\n".join(path.read_text() for path in WORKFLOWS)
    for target in ("check", "test", "site", "test-integrations", "test-ray"):
        assert re.search(rf"^make .*\b{target}\b", here, flags=re.M), target
        measured = "coverage" if target == "test" else target  # the same suite, with the lines that it runs
        assert f"make {measured}" in there, target


def test_yaml_files_can_be_read():
    yaml = pytest.importorskip("yaml")
    files = [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml", ROOT / "CITATION.cff"]
    assert len(files) >= 8
    for path in files:
        assert isinstance(yaml.safe_load(path.read_text()), dict), path
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    assert release["jobs"]["publish"]["permissions"] == {"id-token": "write"}, "trusted publishing, no token"


def test_the_library_is_checked_strictly():
    rules = {o["module"][0]: o for o in PROJECT["tool"]["mypy"]["overrides"]}["adaxopt.*"]
    for flag in ("disallow_untyped_defs", "disallow_any_generics", "warn_return_any", "strict_equality"):
        assert rules[flag] is True
