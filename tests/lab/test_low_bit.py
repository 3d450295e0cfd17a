"""Tables of docs/low-bit-state.md from records."""

from __future__ import annotations

from adaxlab.paper.tables import low_bit


def test_without_records_the_page_says_so(tmp_path):
    assert low_bit.SECTIONS["low-bit-drift"](tmp_path).startswith("*Drift of v: not simulated yet")
    assert low_bit.SECTIONS["low-bit-gpu"](tmp_path).startswith("*Not measured yet")


def test_tables_show_every_row_and_every_failure():
    drift = [
        {
            "memory": memory,
            "gradients": "decaying",
            "stored": name,
            "steps": 20_000,
            "mean": mean,
            "rms": 0.09,
        }
        for memory, means in {"AdaX, b2=3/T": (-0.01, 0.4), "Adam, b2=0.95": (0.012, -0.2)}.items()
        for name, mean in zip(("8-bit, stochastic", "FlashOptim"), means, strict=True)
    ]
    text = low_bit.drift({"coordinates": 512, "rows": drift})
    assert "| 20,000 | AdaX, b2=3/T | decaying | -1.0% (9.0%) | +40.0% (9.0%) |" in text
    assert "at most 1.2% on average" in text
    assert "up to 40% with AdaX's small gains, and 20% with Adam's" in text
    timed = {"model": "256M", "row": "ours", "n": 5, "ms": 1.0, "low": 0.9, "high": 1.1, "floor_ms": 0.8}
    rows = [
        {**timed, "state_bytes": 2.0625},
        {**timed, "row": "variant", "registers": 64, "state_bytes": 2.0625},
        {"model": "256M", "row": "theirs", "failed": "ImportError: x"},
    ]
    environment = {"gpu": "G", "torch": "2", "triton": "3"}
    record = {"environment": environment, "copy_bytes_per_s": 4e12, "rows": rows}
    text = low_bit.gpu(record)
    assert "| 256M | ours | 5 |" in text
    assert "| 0.800 | 2.06 |" in text
    assert "variant" not in text
    assert "Failed: theirs (ImportError: x)." in text


def test_steps_are_those_of_the_codes(tmp_path):
    assert "| sqrt(v) | 3.1% | 3.1% | 3.1% | 3.1% | 3.1% |" in low_bit.steps(tmp_path)
