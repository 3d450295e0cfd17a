"""What every test starts from: the same seed, and torch's ordinary default dtype however the last test ended."""

import sys

import pytest


@pytest.fixture(autouse=True)
def _same_start():
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(torch.float32)
