"""Integrations: real frameworks, in an environment of their own (`make test-integrations`).

A framework that is missing skips its tests with a line that says what to install; with
ADAXOPT_REQUIRE_INTEGRATIONS=1 a skip is a failure. Marks `feature(framework, what)` become, with
ADAXOPT_INTEGRATIONS_RECORD=path, the json that `render.py` makes the documentation's table from.
"""

import json
import os
from importlib import metadata, util
from pathlib import Path

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

HERE = Path(__file__).parent
INSTALL = "make test-integrations, or pip install -c constraints-integrations.txt"
MODULES = {
    "tensorflow-cpu": "tensorflow",
}


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(*packages): distributions that a test cannot run without")
    config.addinivalue_line(
        "markers", "feature(framework, what): a cell of the table in docs/integrations.md"
    )


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in Path(item.path).parents:
            # a framework's own warnings are its own; ours stay errors
            item.add_marker(pytest.mark.filterwarnings("ignore"), append=False)
            item.add_marker(pytest.mark.filterwarnings("error:::adaxopt"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for package in mark.args:
            if util.find_spec(MODULES.get(package, package)) is None:
                line = f"{package} is not installed: {INSTALL} {package}"
                if os.environ.get("ADAXOPT_REQUIRE_INTEGRATIONS") == "1":
                    pytest.fail(line, pytrace=False)
                pytest.skip(line)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    packages = [p for mark in item.iter_markers("needs") for p in mark.args] or ["torch"]
    for mark in item.iter_markers("feature"):
        report.user_properties.append(("feature", [*mark.args, sorted(set(packages))]))


_cells = {}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        for name, value in report.user_properties:
            if name == "feature":
                framework, what, packages = value
                cell = _cells.setdefault((framework, what), {"packages": packages, "outcomes": []})
                cell["outcomes"].append(report.outcome)


def pytest_sessionfinish(session):
    path = os.environ.get("ADAXOPT_INTEGRATIONS_RECORD")
    if not path or hasattr(session.config, "workerinput") or not _cells:
        return
    rows = [
        {
            "framework": framework,
            "feature": what,
            "tests": len(cell["outcomes"]),
            "passed": cell["outcomes"].count("passed"),
            "versions": {p: metadata.version(p) for p in cell["packages"]},
        }
        for (framework, what), cell in _cells.items()
        if set(cell["outcomes"]) != {"skipped"}
    ]
    if not rows:
        return  # nothing was run: what an earlier run left stays
    run = {row["framework"] for row in rows}
    before = json.loads(Path(path).read_text()) if Path(path).exists() else []
    rows += [row for row in before if row["framework"] not in run]  # those that another command tests
    rows.sort(key=lambda row: (row["framework"].lower(), row["feature"]))
    Path(path).write_text(json.dumps(rows, indent=1) + "\n")
