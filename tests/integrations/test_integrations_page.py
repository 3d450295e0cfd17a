"""docs/integrations.md: every block, as it stands, in a process of its own."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import render
from pages import blocks

HERE = Path(__file__).parent
BLOCKS = [b for b in blocks("integrations.md") if b.language == "python"]

FRAMEWORK = {
    "JAX": "JAX / optax",
    "Keras 3, on torch, JAX or TensorFlow": "Keras 3 on JAX",
    "torch's schedulers and weight averaging": "torch.optim.lr_scheduler, swa_utils",
}
"""Headings that the table has another name for."""


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            b,
            id=re.sub(r"\W+", "_", b.heading),
            marks=[
                pytest.mark.needs(*b.options["needs"].split(",")),
                pytest.mark.feature(
                    FRAMEWORK.get(b.heading.split(":")[0], b.heading.split(":")[0]), "block of this page"
                ),
            ],
        )
        for b in BLOCKS
    ],
)
def test_a_block_runs_as_it_stands(block, tmp_path):
    program = tmp_path / "block.py"
    prelude = (
        "import torchvision_operators; torchvision_operators.declare()\n" if "timm" in block.text else ""
    )
    program.write_text(prelude + block.text)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        cwd=tmp_path,
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "PYTHONPATH": os.pathsep.join([str(HERE), *(p for p in sys.path if p)]),
        },
        capture_output=True,
        text=True,
        timeout=900,  # a stop where something hangs; a loaded machine has time
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_every_framework_of_the_page_has_a_block():
    found = {name for b in BLOCKS for name in b.options["needs"].split(",")}
    assert found == {
        "jax",
        "optax",
        "keras",
        "transformers",
        "accelerate",
        "lightning",
        "timm",
        "peft",
        "torch",
    }


def test_the_tables_are_what_the_records_say():
    """Whatever they say: a later run may write new records and a new page, and both still agree."""
    text = render.PAGE.read_text()
    assert render.page(text) == text


METADATA = tomllib.loads((render.ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = "optional-dependencies"


def floors():
    """{package: the oldest release that the metadata admits}, of the extras for frameworks, and timm's."""
    found = dict(
        line.split(">=") for extra in ("jax", "keras", "cluster") for line in METADATA[EXTRAS][extra]
    )
    return {**found, "timm": "1.0.12"}


def test_the_oldest_releases_that_are_admitted_have_been_tested():
    tested = {}
    for row in render.rows("integrations_oldest.json"):
        assert row["passed"] == row["tests"] > 0, row
        tested.update(row["versions"])
    for package, oldest in floors().items():
        release = [int(part) for part in tested[package].split(".")]
        least = [int(part) for part in oldest.split(".")]
        assert release == least + [0] * (len(release) - len(least)), (package, oldest, tested[package])


def test_what_the_modules_ask_for_is_what_the_metadata_admits():
    found = {}
    for name in (
        "adaxopt/torch/__init__.py",
        "adaxopt/jax/__init__.py",
        "adaxopt/keras.py",
        "adaxlab/execute/cluster.py",
        "adaxopt/integrations/__init__.py",
    ):
        source = (render.ROOT / "src" / name).read_text()
        (call,) = re.findall(r"^ *need\((.*)\)$", source, re.MULTILINE)
        found.update(re.findall(r'(\w+)="([\d.]+)"', call))
    assert found == {**floors(), **dict(line.split(">=") for line in METADATA[EXTRAS]["torch"])}
    assert not METADATA["dependencies"]
