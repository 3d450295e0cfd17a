"""The table of sparse steps, from a record made by hand."""

from __future__ import annotations

import json

from adaxlab.paper.tables import sparse_step


def one(coalesced, torchs, rows, kernel):
    times = {"torch SparseAdam": torchs, "AdaX, rows": rows, "AdaX, kernel": kernel}
    return {
        "case": "a table",
        "names": 4096,
        "coalesced": coalesced,
        "rows": {name: {"ms": ms, "low": ms / 2, "high": 2 * ms, "n": 21} for name, ms in times.items()},
    }


def test_ratios_are_torchs_time_over_ours(tmp_path):
    assert sparse_step.section(tmp_path).startswith("*Sparse gradients: not measured yet")
    record = {
        "environment": {"gpu": "a GPU", "torch": "2"},
        "steps": 30,
        "cases": [one(False, 1.5, 2.5, 0.5), one(True, 0.9, 1.6, 0.1)],
    }
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "gpu_sparse.json").write_text(json.dumps(record))
    text = sparse_step.section(tmp_path)
    assert (
        "| a table, 4,096 indices | 21 | 1.500 (0.750 to 3.000) | 0.500 (0.250 to 1.000) | 3.00 | 9.00 |"
        in text
    )
    assert "takes 5.0 to 16.0 times as long" in text
    assert "(a GPU, torch 2)" in text
