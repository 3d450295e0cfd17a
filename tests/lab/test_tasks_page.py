"""docs/tasks.md: its files are written and its commands run as a reader would, on a CPU."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from adaxlab import cli, store

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
FILES = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```", PAGE, flags=re.S | re.M))
COMMANDS = [
    shlex.split(block.replace("\\\n", " "))
    for block in re.findall(r"^```bash\n(.*?)^```", PAGE, flags=re.S | re.M)
]


def test_the_page_has_its_examples():
    assert list(FILES) == ["my_task.py", "reviews.py", "my_optimizer.py", "letters.py"]
    assert [words[2] for words in COMMANDS] == [
        "my_task.py:MyTask",
        "reviews.py:Reviews",
        "reviews.py:Reviews",
        "letters.py:Letters",
    ]
    assert {"--tune-over", "--seeds", "--jobs", "--budget"} <= set(COMMANDS[2])


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """What a command of the page prints as JSON; as many processes as the page says would be too many here."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        Path(name).write_text(text)

    def run(words):
        if "--jobs" in words:
            words = [*words[: words.index("--jobs")], *words[words.index("--jobs") + 2 :]]
        assert cli.main([*words[1:], "--device", "cpu", "--quiet", "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def test_the_first_example_gives_a_sensible_result(run):
    found = run(COMMANDS[0])
    adamw, adaxw = found["optimizers"]
    assert found["answer"]["use"] in ("adamw", "adaxw")
    for row in (adamw, adaxw):
        assert row["estimate"]["mean"] > 0.85  # chance is 0.5
        assert row["diverged"] == 0
        assert len(row["values"]) == 5
        assert len(row["trials"]) == 8
    assert adaxw["verdict"]["outcome"] in ("better", "worse", "inconclusive")
    assert adaxw["b2_steps"] == pytest.approx(3, rel=1e-3)
    assert abs(adamw["estimate"]["mean"] - adaxw["estimate"]["mean"]) < 0.1  # tuned, they are alike


def test_two_settings_of_the_readers_own_class_are_tuned_for_macro_f1(run):
    pytest.importorskip("optuna")
    found = run(COMMANDS[1])
    adamw, own = found["optimizers"]
    assert found["metric"] == "macro_f1"
    first = own["trials"][0]["options"]
    assert (first["lr"], first["alpha"]) == (1e-3, 0.9), "the first trial has the class's own settings"
    alphas = [trial["options"]["alpha"] for trial in own["trials"]]
    assert len(set(alphas)) == len({trial["options"]["lr"] for trial in adamw["trials"]}) == 12
    assert all(0.5 <= alpha <= 0.99 for alpha in alphas)
    assert own["estimate"]["mean"] > 0.5  # chance is 0.33
    assert f"{len(store.load_runs('runs'))} training runs: 2 optimizers" in PAGE


def test_a_classifier_with_f1_an_own_optimizer_and_a_budget(run):
    pytest.importorskip("optuna")
    found = run(COMMANDS[2])
    assert found["metric"] == "macro_f1"
    assert found["study"]["budget"]["asked"] == "2h"
    names = [row["name"] for row in found["optimizers"]]
    assert names == ["adamw", "my_optimizer.py:make", "my_optimizer.py:RowStep+adamw"]
    for row in found["optimizers"]:
        assert 0.5 < row["estimate"]["mean"] <= 1
        assert list(row["other_metrics"]) == ["accuracy"]
        assert (
            row["other_metrics"]["accuracy"]["mean"] > row["estimate"]["mean"]
        )  # the rare class is the hard one
        assert len({trial["options"]["weight_decay"] for trial in row["trials"]}) == len(row["trials"]) == 12


def test_the_same_by_scikit_learn(run):
    metrics = pytest.importorskip("sklearn.metrics")
    from adaxlab import task

    made = task.load("reviews.py:Reviews")
    x, y = made.data()["test"]
    model = made.model().eval()
    expected = metrics.f1_score(y, model(x).argmax(1), average="macro")
    assert float(made.evaluate(model, [(x[:300], y[:300]), (x[300:], y[300:])])["macro_f1"]) == pytest.approx(
        expected
    )


def test_a_language_model_and_splits(run):
    torch = pytest.importorskip("torch")
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("torch.optim.Muon came with torch 2.9")
    found = run(COMMANDS[3])
    assert [row["name"] for row in found["optimizers"]] == ["adamw", "muon+adamw", "muon+adaxw"]
    for row in found["optimizers"]:
        assert 1 < row["estimate"]["mean"] < 12  # of 24 letters
        assert list(row["other_metrics"]) == ["bits_per_letter"]


def test_a_factory(run):
    found = run(["adax", "compare", "my_task.py:MyTask", "--optimizers", "my_optimizer.py:make", "adamw", "--tune", "2",
                 "--seeds", "3", "--epochs", "1"])  # fmt: skip
    assert found["optimizers"][0]["error"] is None
    assert {r.status for r in store.load_runs("runs")} == {"finished"}
