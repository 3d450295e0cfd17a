"""The report as pictures in files: formats, colours, the same bytes from the same records."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

pytest.importorskip("altair", reason="the report needs altair: pip install 'adaxopt[lab]'")
pytest.importorskip("vl_convert", reason="the report needs vl-convert-python: pip install 'adaxopt[lab]'")

from report_records import LEVELS, study

from adaxlab import store
from adaxlab.paper import catalogue, figures
from adaxlab.report import palette, static
from adaxlab.report.names import TITLES, titles
from adaxlab.report.page import render
from adaxlab.stats import DecisionRule
from adaxlab.store import RunRecord
from adaxlab.study import Row, Study


def test_static_pictures(tmp_path):
    paths = static.save_charts(study(), tmp_path)
    names = ("metric", "train-loss", "loss-time", "seeds", "lr", "difference", "time")
    want = {f"digits-{n}{d}.svg" for n in names for d in ("", "-dark")}
    assert {p.name for p in paths} == want
    for path in paths:
        text = path.read_text()
        root = xml.fromstring(text)
        assert root.tag.endswith("svg")
        assert palette.PAPER["dark" if "-dark" in path.name else "light"] in text
        assert not re.findall(r"https?://(?!www\.w3\.org/)", text)
    light, dark = ((tmp_path / f"digits-metric{d}.svg").read_text() for d in ("", "-dark"))
    for name in LEVELS:
        assert palette.LOOKS[name].light in light
        assert palette.LOOKS[name].dark in dark
        assert f">{TITLES[name]}<" in light


def test_the_same_records_give_the_same_bytes(tmp_path):
    runs = study(seeds=2)
    one = static.save_charts(runs, tmp_path / "a", themes=["light"])
    two = static.save_charts(runs, tmp_path / "b", themes=["light"])
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    assert render(runs) == render(runs)


def test_pictures_of_the_documentation_are_a_function_of_the_records(tmp_path, capsys):
    records, images = tmp_path / "records", tmp_path / "images"
    records.mkdir()
    named = [RunRecord({**r.spec, "study": "gpt"}, r.env, r.metrics, r.done, r.path) for r in study(seeds=2)]
    store.export(named, records / "gpt.jsonl")
    other = [RunRecord({**r.spec, "study": "voc/camvid"}, r.env, r.metrics, r.done, r.path) for r in named]
    store.export(other, records / "unfinished" / "voc-camvid.jsonl")
    (records / "other.jsonl").write_text("{}\n")
    given = ["--records", str(records), "--out", str(images)]
    assert figures.main(given) == 0
    names = {p.name for p in images.iterdir()}
    kinds = ("metric", "lr", "difference")
    assert names == {f"gpt-{kind}{theme}.svg" for kind in kinds for theme in ("", "-dark")}
    assert figures.main([*given, "--check"]) == 0
    (images / "gpt-lr.svg").write_text("<svg/>")
    (images / "gpt-metric.svg").unlink()
    capsys.readouterr()
    assert figures.main([*given, "--check"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert [Path(line.partition(":")[0]).name for line in said] == ["gpt-metric.svg", "gpt-lr.svg"]
    assert figures.main(["--records", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_a_picture_compares_with_what_its_study_does(tmp_path, monkeypatch):
    named = [RunRecord({**r.spec, "study": "gpt"}, r.env, r.metrics, r.done, r.path) for r in study(seeds=3)]
    labels = {r.spec["optimizer"] for r in named}
    store.export(named, tmp_path / "gpt.jsonl")
    for baseline in labels:
        asked = Study(
            "gpt",
            (Row(baseline), Row("rmsprop")),
            "gpt",
            baseline=baseline,
            rule=DecisionRule(confidence=0.8),
            figures=("difference",),
        )
        monkeypatch.setattr(catalogue, "studies", lambda asked=asked: {"gpt": asked})
        assert figures.main(["--records", str(tmp_path), "--out", str(tmp_path / "images")]) == 0
        drawn = (tmp_path / "images" / "gpt-difference.svg").read_text()
        assert f"Compared with {titles([baseline])[baseline]} on the same seeds" in drawn
        assert "80% interval" in drawn
    assert len(labels) > 1


def test_figures_have_the_unit_of_the_tables():
    """Shares of 1 are drawn in percent, as tables have them; losses stay as they are."""
    (share, *_), loss = study(seeds=1), study(seeds=1)[0]
    share = RunRecord(
        share.spec, share.env, [{"metric": 0.25, "train_metric": 0.5, "train_loss": 2.0}],
        {"metric": 0.25, "metric_name": "mean IoU", "higher_is_better": True}, share.path,
    )  # fmt: skip
    made = figures.in_percent(share)
    assert made.done == {"metric": 25.0, "metric_name": "mean IoU (%)", "higher_is_better": True}
    assert made.metrics == [{"metric": 25.0, "train_metric": 50.0, "train_loss": 2.0}]
    loss.done["metric_name"] = "nats per word"
    assert figures.in_percent(loss) is loss
    images = Path(__file__).parents[2] / "docs" / "images"
    for name, axis in (("voc-camvid-metric", "mean IoU (%)"), ("imagenet-tuned-difference", "by (points)")):
        assert axis in (images / f"{name}.svg").read_text()
