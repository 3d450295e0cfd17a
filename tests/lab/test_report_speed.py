"""The picture of the GPU benchmark against the record that it is drawn from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")

from adaxlab.paper import doc_charts
from adaxlab.paper.tables import gpu_step
from adaxlab.report import static

ROOT = Path(__file__).parents[2]

ROWS = {"torch AdamW fused": 2.0, "AdaXW fused": 1.6, "AdaXW fused, frozen": 1.25, "torch AdamW foreach": 5.0}


def benchmark():
    rows = [
        {"model": model, "row": name, "gradients": gradients, "ms": ms * scale, "low": 0.9 * ms * scale}
        | {"high": 1.1 * ms * scale, "n": 9, "tensors": tensors, "numbers": 1000 * tensors, "floor_ms": scale}
        for model, scale, tensors in (("256M", 1.0, 1), ("Net", 0.01, 59))
        for gradients in ("fixed", "fresh")
        for name, ms in ROWS.items()
    ]
    return {"environment": {"gpu": "H200", "torch": "2.11", "triton": "3.6"}, "rows": rows}


def test_every_model_has_a_panel_with_its_speedups(tmp_path):
    record = benchmark()
    chart = doc_charts.gpu_steps(record).to_dict()
    assert [panel["title"]["text"] for panel in chart["vconcat"]] == [
        "One tensor of 0.001M numbers",
        "Net: 0.059M numbers in 59 tensors",
    ]
    for panel, scale in zip(chart["vconcat"], (1.0, 0.01), strict=True):
        rows = {r["row"]: r for r in chart["datasets"][panel["layer"][0]["data"]["name"]]}
        assert list(rows) == ["torch AdamW fused", "AdaXW fused", "AdaXW fused, frozen"]
        assert rows["AdaXW fused"]["ms"] == pytest.approx(1.6 * scale)
        assert "1.25× as fast" in rows["AdaXW fused"]["text"]
        assert "1.60× as fast" in rows["AdaXW fused, frozen"]["text"]
    paths = static.save_chart(
        doc_charts.gpu_steps(record), tmp_path / "gpu-step", doc_charts.gpu_steps_words(record)
    )
    text = re.sub(r"<[^>]+>", "\n", paths[0].read_text())
    for words in ("n = 9 rounds", "torch 2.11", "2.00 ms", "0.0160 ms · 1.25× as fast"):
        assert words in text, words


def test_the_page_and_its_figure_show_the_committed_record(tmp_path):
    committed = json.loads((ROOT / "records" / gpu_step.RECORD).read_text())
    own = next(r for r in committed["rows"] if (r["model"], r["row"]) == ("ResNet-20", "AdaXW fused"))
    page = (ROOT / "docs" / "speed.md").read_text()
    assert f"| {own['n']} | " in page
    assert gpu_step.answer(ROOT) in page
    assert gpu_step.answer(tmp_path).startswith("*Not measured yet")
    assert f"{own['speedup']:.2f}× as fast" in (ROOT / "docs" / "images" / "gpu-step.svg").read_text()
