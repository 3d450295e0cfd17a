"""The programs of examples/ run, at small sizes; `adax.py` gives the library's numbers.

`two_spirals.py`, a task for `adax compare`, is run by tests/lab/test_cli.py, and `finetune_hf.py` by
tests/integrations/test_examples.py.
"""

from __future__ import annotations

import importlib.util
import math
import random
from pathlib import Path

import pytest
import torch

import adaxopt

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    """The program as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("cls", "decoupled"), [(adaxopt.AdaX, False), (adaxopt.AdaXW, True)])
@pytest.mark.parametrize("b2", [1e-4, 1e-2])
def test_the_plain_algorithm_is_the_library_s(cls, decoupled, b2):
    """Forty steps in float64. The last coordinate gets its first gradient at step 21, and no decay moves it before."""
    draw = random.Random(0)
    start = [1.0, -2.0, 0.5, 0.0]
    plain = example("adax").AdaX(list(start), 0.01, 0.9, b2, 1e-8, weight_decay=0.1, decoupled=decoupled)
    p = torch.nn.Parameter(torch.tensor(start, dtype=torch.float64))
    optimizer = cls([p], lr=0.01, betas=(0.9, b2), eps=1e-8, weight_decay=0.1)
    for t in range(40):
        g = [draw.gauss(0, 10**i) for i in range(3)] + [draw.gauss(0, 1) if t >= 20 else 0.0]
        p.grad = torch.tensor(g, dtype=torch.float64)
        optimizer.step()
        plain.step(g)
        torch.testing.assert_close(p.data, torch.tensor(plain.x, dtype=torch.float64), rtol=1e-12, atol=1e-15)
    assert plain.x[3] != 0


def test_the_plain_algorithm_is_stable_over_a_million_steps():
    plain = example("adax").AdaX([1.0])
    plain.t = 10**6
    plain.step([1.0])
    assert math.isfinite(plain.x[0])
    assert plain.x[0] < 1.0


TINY = [
    "--device",
    "cpu",
    "--layers",
    "1",
    "--heads",
    "2",
    "--width",
    "16",
    "--context",
    "16",
    "--batch",
    "8",
]


def test_the_gpt_learns_and_resumes_where_it_stopped(tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 40)
    train = example("train_gpt").main
    given = [*TINY, "--text", str(text), "--steps", "30", "--lr", "1e-2"]
    given += ["--evaluate-every", "10"]
    whole = train(given)
    first = float(capsys.readouterr().out.split("held-out loss ")[1].split()[0])
    assert first == pytest.approx(math.log(28), abs=0.2), "28 characters, nothing learnt yet"
    assert whole < first - 0.3
    stopped = [*given, "--checkpoint", str(tmp_path / "checkpoint.pt")]
    train([*stopped, "--stop-at", "20"])
    assert train(stopped) == pytest.approx(whole, rel=1e-6)


def test_the_gpt_has_nanogpt_s_size():
    model = example("train_gpt").Gpt(vocabulary=65, context=256, layers=6, heads=6, width=384)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(10.7e6, rel=0.01)
