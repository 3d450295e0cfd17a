"""What a type checker says of a user's program: every line marked with an error is one, and no other line is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")
ROOT = Path(__file__).parents[1]

PROGRAM = """
import torch
import adaxopt
from adaxopt import AdaX, AdaXW, Box, Padax, create
from adaxopt import Adax  # error: attr-defined
from adaxopt import adamw  # error: attr-defined
from adaxopt.torch import Adaxw  # error: attr-defined

model = torch.nn.Linear(2, 2)
AdaXW(model)  # error: arg-type
AdaX(torch.nn.Sequential(model))  # error: arg-type
create("adam", model)  # error: arg-type
AdaXW(model.parameters(), lr=torch.tensor(0.1), betas=(0.9, torch.tensor(1e-4)), decay="fully_decoupled")
AdaXW(model.named_parameters(), rounding="kahan", state_dtype=torch.bfloat16, project=Box(-1, 1))
AdaXW([{"params": list(model.parameters()), "lr": 0.1}], eps_placement="plain")
AdaXW(adaxopt.param_groups(model, 0.1))
Padax(list(model.parameters()), p=0.25)
create("adam", model.parameters(), lr=0.1).step()
AdaX(model.parameters(), decay="l1")  # error: arg-type
AdaXW(model.parameters(), rounding="up")  # error: arg-type
Padax(model.parameters(), eps_placement="after")  # error: arg-type
AdaXW(model.parameters(), weight_decy=0.1)  # error: call-arg
AdaXW(model.parameters(), amsgrad=True)  # error: call-arg
adaxopt.AdaXw  # error: attr-defined
version: str = adaxopt.__version__
"""


def test_errors_where_they_are_and_nowhere_else(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", "--show-error-codes", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = {
        int(number): code
        for number, code in re.findall(r"program\.py:(\d+): error: .*\[([a-z-]+)\]", done.stdout)
    }
    wanted = {
        number: line.rsplit("# error: ", 1)[1]
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if "# error: " in line
    }
    assert found == wanted, done.stdout + done.stderr
