"""docs/integrations.md: every block, as it stands, in a process of its own."""

import json
import os
import re
import subprocess
import sys
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
        timeout=300,
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


def test_the_table_is_what_the_record_says():
    text = render.PAGE.read_text()
    assert render.page(text, json.loads(render.RECORD.read_text())) == text
