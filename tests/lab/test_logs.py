"""`--log`: curves in real TensorBoard files, each run once, whatever was interrupted; watchers are told everything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tiny import TINY

from adaxlab import compare, driver, logs, study
from adaxlab.errors import Interrupted, LabError


def small():
    rows = compare.rows(("sgdm", "adaxw"))
    return study.Study(f"{TINY}:Tiny", rows, "small", seeds=2, epochs=3, tuning=study.Tuning(2))


def curves(folder):
    """{run: {tag: [(step, value)]}} as TensorBoard itself reads the files."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = {}
    for file in sorted(folder.rglob("events.*")):
        events = accumulator.EventAccumulator(str(file.parent)).Reload()
        assert len(list(file.parent.glob("events.*"))) == 1
        found[str(file.parent.relative_to(folder))] = {
            tag: [(event.step, event.value) for event in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]
        }
    return found


@pytest.fixture
def place(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tensorboard_has_every_curve_of_every_run(place):
    result = compare.compare(small(), place / "runs", watcher=logs.Several(*logs.beside("tensorboard")))
    found = curves(place / "logs")
    assert len(found) == len(result.records) == 2 * (2 + 2)
    for record in result.records:
        curve = found[f"small/{logs.label(record)}"]
        assert set(curve) == {"train_loss", "train_metric", "valid_loss", "accuracy", "lr", "seconds"}
        for tag, key in {"accuracy": "metric", "valid_loss": "valid_loss", "lr": "lr"}.items():
            assert [step for step, _ in curve[tag]] == [line["step"] for line in record.metrics]
            assert [value for _, value in curve[tag]] == pytest.approx([line[key] for line in record.metrics])


def test_interrupted_and_started_again_nothing_is_sent_twice(place):
    class Impatient(driver.Silent):
        count = 0

        def finished(self, record):
            self.count += 1
            if self.count == 3:
                raise Interrupted("enough", 2)

    with pytest.raises(Interrupted):
        compare.compare(
            small(), place / "runs", watcher=logs.Several(logs.Log("tensorboard", "a"), Impatient())
        )
    assert len(curves(place / "a")) == 3
    [torn] = [min((place / "a").rglob("events.*"))]
    mark = min((place / "runs" / "small" / ".logged").iterdir())
    mark.unlink()  # as after a kill between the files and the mark
    compare.compare(small(), place / "runs", watcher=logs.Log("tensorboard", "a"))
    assert len(curves(place / "a")) == 8
    before = {path: path.stat().st_mtime_ns for path in (place / "a").rglob("events.*")}
    compare.compare(small(), place / "runs", watcher=logs.Log("tensorboard", "a"))
    assert {path: path.stat().st_mtime_ns for path in (place / "a").rglob("events.*")} == before
    assert torn.parent.exists()


def test_the_other_metrics_of_a_task_are_curves_too():
    line = {
        "step": 4,
        "epoch": 1,
        "metric": 0.5,
        "metrics": {"f1": 0.5, "auc": 0.7},
        "train_metric": None,
        "lr": 0.1,
    }
    record = study_record([line])
    assert list(logs.scalars(record)) == [(4, {"lr": 0.1, "f1": 0.5, "auc": 0.7})]


def study_record(metrics):
    from adaxlab.store import RunRecord

    return RunRecord({}, {}, metrics, {"metric_name": "f1"}, Path())


@pytest.mark.parametrize(
    ("words", "message"),
    [("tensorbord", "unknown --log 'tensorbord'"), ("wandb", "--log wandb needs wandb>=")],
)
def test_what_is_unknown_or_missing_is_one_line(words, message, monkeypatch):
    if words == "wandb":
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LabError, match=message):
        logs.beside(words)


def test_a_tracker_gets_a_run_with_its_settings_and_curves(tmp_path, monkeypatch):
    """Weights & Biases and Trackio share these calls; the module here writes down what it is given."""
    (tmp_path / "trackio.py").write_text(
        "calls = []\n"
        "def init(**given): calls.append(('init', given))\n"
        "def log(found, step): calls.append(('log', step, found))\n"
        "def finish(): calls.append(('finish',))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "trackio", raising=False)
    one = study.Study(f"{TINY}:Tiny", compare.rows(("sgdm",)), "one", seeds=1, epochs=2)
    result = compare.compare(one, tmp_path / "runs", watcher=logs.Several(*logs.beside("trackio=mine")))
    calls = sys.modules["trackio"].calls
    [record] = result.records
    assert [call[0] for call in calls] == ["init", "log", "log", "finish"]
    assert calls[0][1]["project"] == "mine"
    assert calls[0][1]["config"]["options.lr"] == record.spec["options"]["lr"]
    assert [call[1] for call in calls[1:3]] == [line["step"] for line in record.metrics]
    assert calls[2][2]["accuracy"] == record.metrics[-1]["metric"]
