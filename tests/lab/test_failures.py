"""The user's own code goes wrong: one line says what and where, the rest of the study runs, the traceback is kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tiny import TINY, one_line, own

from adaxlab import cli, compare, estimate, failures, optimizers, store, study
from adaxlab.answer import answer
from adaxlab.errors import LabError, StoreError
from adaxlab.report import series


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for cache in (study._made, study._data_digest, study._epoch_steps):  # by the task's name, here relative
        cache.cache_clear()
    return tmp_path


def compared(task, *optimizers, more=()):
    words = [
        "compare",
        task,
        "--tune",
        "0",
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--out",
        "runs",
        "--study",
        "one",
        "--quiet",
    ]
    return cli.main([*words, "--optimizers", *optimizers, *more])


CRASHES = {
    "at its first step": "raise RuntimeError('no kernel [/red]')",
    "later": "self.n = getattr(self, 'n', 0) + 1\n        if self.n > 3: raise KeyError('exp_avg')\n"
    "        return super().step(closure)",
    "with a message of two lines": "raise ValueError('first\\nsecond')",
    "by sys.exit(0)": "sys.exit(0)",
    "by sys.exit()": "sys.exit()",
    "by an exception that is no Exception": "raise BaseException('odd')",
}


@pytest.mark.parametrize("step", CRASHES.values(), ids=CRASHES)
def test_an_optimizer_that_crashes_ends_its_row_alone(step, capsys):
    own("mine.py", f"class Opt(PlainSGD):\n    def step(self, closure=None):\n        {step}\n")
    assert compared(f"{TINY}:Tiny", "mine.py:Opt", "sgdm", "adaxw", more=["--set", "mine.py:Opt.lr=0.1"]) == 1
    out, err = capsys.readouterr()
    assert err.count("\n") == 1
    assert err.startswith("adax: 1 of 3 optimizers failed: mine.py:Opt: ")
    assert "(at mine.py:" in err
    records = store.load_runs("runs")
    assert {r.row for r in records if r.done} == {"sgdm", "adaxw"}
    assert len([r for r in records if r.done]) == 4
    [failed] = [r for r in records if r.status == "failed"]
    assert failed.error in err
    assert str(failed.path / "error.txt") in err
    rows = [line.split() for line in out.splitlines() if line.split()[:1] == ["mine.py:Opt"]]
    assert any("failed" in row for row in rows), out
    assert "".join(failed.error.split()) in "".join(out.split()), "the table says why"
    trace = (failed.path / "error.txt").read_text()
    assert "Traceback (most recent call last)" in trace
    assert "mine.py" in trace


def test_a_repaired_optimizer_is_run_anew_and_a_passing_failure_tried_again(capsys):
    own(
        "mine.py",
        "import os\nclass Opt(PlainSGD):\n    def step(self, closure=None):\n"
        "        if os.path.exists('broken'): raise OSError('no such device')\n        return super().step(closure)\n",
    )
    Path("broken").touch()
    more = ["--set", "mine.py:Opt.lr=0.1"]
    assert compared(f"{TINY}:Tiny", "mine.py:Opt", "sgdm", more=more) == 1
    Path("broken").unlink()
    assert compared(f"{TINY}:Tiny", "mine.py:Opt", "sgdm", more=more) == 0
    assert not list(Path("runs").rglob("error.txt"))
    assert {r.status for r in store.load_runs("runs")} == {"finished"}


def test_a_baseline_that_crashes_leaves_no_verdict(capsys):
    own(
        "mine.py",
        "class Opt(PlainSGD):\n    def step(self, closure=None):\n        raise RuntimeError('x')\n",
    )
    more = ["--set", "mine.py:Opt.lr=0.1", "--baseline", "mine.py:Opt", "--seeds", "3"]
    assert compared(f"{TINY}:Tiny", "mine.py:Opt", "sgdm", "adaxw", more=more) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    for name in ("sgdm", "adaxw"):
        row = next(words for words in lines if words[:1] == [name])
        assert not {"held", "undecided", "better", "worse", "inconclusive"} & set(row), row


def test_a_constructor_that_crashes_on_the_model_alone(capsys):
    text = """class Opt(PlainSGD):
    def __init__(self, params, lr=0.1):
        params = list(params)
        if any(p.dim() == 2 for p in params): raise RuntimeError('only vectors')
        super().__init__(params, lr)
"""
    own("mine.py", text)
    assert compared(f"{TINY}:Tiny", "mine.py:Opt", "sgdm") in (1, 2)
    assert "only vectors" in one_line(capsys)


def test_a_failed_run_is_listed_and_shown(capsys):
    own(
        "mine.py",
        "class Opt(PlainSGD):\n    def step(self, closure=None):\n        raise RuntimeError('x[1]')\n",
    )
    compared(f"{TINY}:Tiny", "mine.py:Opt", "sgdm", more=["--set", "mine.py:Opt.lr=0.1"])
    capsys.readouterr()
    assert cli.main(["runs", "list", "--status", "failed", "--json"]) == 0
    [row] = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["error"].startswith("RuntimeError: x[1] (at mine.py:")
    assert cli.main(["runs", "show", row["run"]]) == 0
    assert "Traceback (most recent call last)" in capsys.readouterr().out


TASKS = {
    "constructor, ValueError": ("def __init__(self): raise ValueError('no data yet')", 2, "ValueError: no data yet"),
    "constructor, TypeError": ("def __init__(self): len(3)", 2, "TypeError: object of type 'int' has no len()"),
    "constructor, sys.exit": ("def __init__(self): sys.exit(0)", 2, "it called sys.exit(0)"),
    "data": ("def data(self): raise FileNotFoundError('train.csv')", 1, "FileNotFoundError: train.csv"),
    "data, sys.exit": ("def data(self): sys.exit('no data')", 1, "it called sys.exit('no data')"),
    "digest": ("def digest(self): raise OSError('gone')", 2, "digest(): OSError: gone"),
    "model, sys.exit": ("def model(self): sys.exit(0)", 1, "it called sys.exit(0)"),
    "loss, sys.exit": ("def loss(self, model, batch): sys.exit(0)", 1, "it called sys.exit(0)"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "code", "expected"), TASKS.values(), ids=TASKS)
def test_a_task_that_fails_is_one_line(body, code, expected, capsys):
    own("my_task.py", f"class Mine(Tiny):\n    {body}\n")
    assert compared("my_task.py:Mine", "sgdm", "adaxw") == code
    err = one_line(capsys)
    assert expected in err
    assert "(at my_task.py:" in err


def test_an_optimizer_that_is_refused_leaves_no_trace_in_the_study(capsys):
    own("mine.py", "def forgets(model, lr=0.1):\n    return torch.optim.SGD([*model.parameters()][:1], lr)\n")
    assert compared(f"{TINY}:Tiny", "sgdm", "adaxw") == 0
    capsys.readouterr()
    assert compared(f"{TINY}:Tiny", "sgdm", "adaxw", "mine.py:forgets") == 2
    assert "leaves out 3 parameters" in one_line(capsys)
    assert compared(f"{TINY}:Tiny", "sgdm", "adaxw") == 0
    assert "after a look" not in capsys.readouterr().out


def test_every_task_is_checked_before_the_first_run(capsys):
    text = """class Flat(Tiny):
    def model(self): return torch.nn.Linear(8, 2)

def deep(model, lr=0.1):
    if len(list(model.children())) < 2: raise ValueError('too flat')
    return torch.optim.SGD(model.parameters(), lr)
"""
    own("my_task.py", text)
    words = ["compare", f"{TINY}:Tiny", "my_task.py:Flat", "--optimizers", "sgdm", "my_task.py:deep"]
    assert cli.main([*words, "--tune", "0", "--seeds", "1", "--quiet"]) == 2
    assert "too flat" in one_line(capsys)
    assert not Path("runs").exists()


def test_a_test_split_that_no_run_accepts_is_found_before_tuning(capsys):
    split = "return {**super().data(), 'test': (torch.ones(0, 8), torch.ones(0))}"
    own("my_task.py", f"class Mine(Tiny):\n    def data(self): {split}\n")
    assert compared("my_task.py:Mine", "sgdm", "adaxw", more=["--tune", "2"]) == 2
    assert "data()['test']: tensors of [0, 0] rows" in one_line(capsys)
    assert not Path("runs").exists()


def test_runs_of_an_edited_task_do_not_count_as_made():
    given = study.Study("my_task.py:Mine", (study.Row("sgdm"),), "one", seeds=2, epochs=1)
    made = []
    for text in ("", "\n"):
        own("my_task.py", f"class Mine(Tiny): pass\n{text}")
        sys.modules.pop(next((name for name in sys.modules if "task_my_task" in name), ""), None)
        made.append(estimate.made(given.complete(), "runs"))
        compare.compare(given, "runs")
        made.append(estimate.made(given.complete(), "runs"))
    assert made == [0, 2, 0, 2]


@pytest.mark.parametrize("edited", ["task", "optimizer", "data"])
def test_an_edit_after_a_look_is_part_of_the_answer_and_the_report_shows_the_present_version(edited):
    def write(kind, text):
        own(f"my_{kind}.py", text)
        sys.modules.pop(next((name for name in sys.modules if f"task_my_{kind}" in name), ""), None)

    files = {
        "task": "from pathlib import Path\nclass Mine(Tiny):\n"
        "    def digest(self): return Path('my_data.py').read_text()\n",
        "data": "",
        "optimizer": "class Own(PlainSGD):\n    def __init__(self, params, lr=0.1): super().__init__(params, lr)\n",
    }
    name = {"task": "my_task.py:Mine", "optimizer": "my_optimizer.py:Own", "data": "my_task.py:Mine"}
    rows = study.Row("sgdm"), study.Row(name["optimizer"])
    given = study.Study(name["task"], rows, "one", seeds=1, epochs=1)
    for kind, text in files.items():
        write(kind, text)
    made, seen, shown = [], [], []
    for more in ("", "# edited\n", ""):
        write(edited, files[edited] + more)
        study._data_digest.cache_clear()
        made.append(estimate.made(given.complete(), "runs"))
        result = compare.compare(given, "runs")
        seen.append(result.history)
        [page] = series.studies(store.load_runs("runs"))
        shown.append({run.name for run in page.records} == {run.name for run in result.records})
    assert made == {"task": [0, 0, 2], "optimizer": [0, 1, 2], "data": [0, 2, 2]}[edited]
    again = f"{name[edited]} was edited after a look at the results."
    assert (seen, shown) == ([(), (again,), (again,)], [True] * 3)


def test_an_optimizer_without_lr_in_its_groups_is_one_line(capsys):
    own("my_task.py", "class Own(PlainSGD):\n    def __init__(self, params, lr=0.1):\n"
        "        torch.optim.Optimizer.__init__(self, params, {'rate': lr})\n")  # fmt: skip
    assert compared(f"{TINY}:Tiny", "my_task.py:Own") == 2
    assert "its param_groups have no lr" in one_line(capsys)


@pytest.mark.parametrize(("init", "more"), [("", ""), ("batch=8", " (--task-option batch=4)")])
def test_a_batch_size_that_would_have_no_effect_is_one_line(init, more, capsys):
    own("my_task.py", f"class Mine(Tiny):\n    def __init__(self, {init}): super().__init__()\n"
        "    def data(self):\n        d = super().data()\n"
        "        return {**d, 'train': [tuple(t[:8] for t in d['train'])]}\n")  # fmt: skip
    assert compared("my_task.py:Mine", "sgdm") == 0
    assert compared("my_task.py:Mine", "sgdm", more=["--batch-size", "4"]) == 2
    words = "--batch-size 4: 'train' of my_task.py:Mine gives batches; set their size in the task"
    assert one_line(capsys).strip().endswith(words + more)
    assert compared("my_task.py:Mine", "sgdm", more=["--batch-size", "16"]) == 0, "the task's: the same study"


def test_the_line_of_code_names_the_groups_of_the_task():
    own("my_task.py", "class Mine(Tiny):\n    def groups(self, model, options):\n"
        "        return [{'params': list(model.parameters()), 'lr': 0.1}]\n")  # fmt: skip
    given = study.Study("my_task.py:Mine", (study.Row("adamw"),), seeds=1, epochs=1)
    code = answer(compare.compare(given, "runs")).code
    assert code.endswith("  # with the task's groups(model, options) for model.parameters()")
    assert study.Study("./my_task.py:Mine", given.rows, seeds=1, epochs=1).complete() == given.complete()


def test_tasks_of_one_name_need_two_studies(capsys):
    own("my_task.py", "class Tiny(Tiny): pass\n")
    words = ["compare", f"{TINY}:Tiny", "my_task.py:Tiny", "--study", "one", "--tune", "0", "--out", "runs"]
    assert cli.main(words) == 2
    assert "would share the name one-Tiny" in one_line(capsys)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_task_prints_is_not_among_the_results(jobs, capsys):
    own("my_task.py", "class Mine(Tiny):\n    def model(self): print('noise'); return super().model()\n")
    assert compared("my_task.py:Mine", "sgdm", "adaxw", more=["--json", "--jobs", jobs]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["metric"] == "accuracy"
    assert "noise" in err


FILES = {
    "ValueError": "raise ValueError('bad table')",
    "sys.exit": "sys.exit(0)",
    "SyntaxError": "class Mine(:",
    "ImportError": "import nowhere_at_all",
}


@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
@pytest.mark.parametrize("form", ["{0}.py:Mine", "{0}:Mine"])
def test_a_file_that_cannot_be_imported_is_one_line(text, form, capsys, request):
    name = f"own_{abs(hash(request.node.name))}"
    own(f"{name}.py", text)
    for words in ([form.format(name), "sgdm"], [f"{TINY}:Tiny", form.format(name)]):
        assert compared(*words) == 2
        assert name in one_line(capsys)
    assert not Path("runs").exists()


def test_a_training_metric_that_is_not_a_number_is_left_out(capsys):
    text = """class Mine(Tiny):
    def loss(self, model, batch):
        loss, right = super().loss(model, batch)
        self.n = getattr(self, 'n', 0) + model.training
        return loss, float('inf') if model.training and self.n > 1 else right
"""
    own("my_task.py", text)
    assert compared("my_task.py:Mine", "sgdm") == 0
    runs = store.load_runs("runs")
    assert {run.status for run in runs} == {"finished"}
    assert {line["train_metric"] for run in runs for line in run.metrics} == {None}


UNDEFINED = """class Mine(Tiny):
    higher_is_better = {higher}

    def evaluate(self, model, split):
        spread = sum(p.abs().max() for p in model.parameters()).item()
        return {{"accuracy": 0.5 if {fine} else float("nan")}}
"""


@pytest.mark.parametrize("higher", [True, False])
def test_a_metric_that_becomes_nan_is_a_run_that_diverged(capsys, higher):
    """The correlation of a constant prediction, for example. The other learning rates continue."""
    own("my_task.py", UNDEFINED.format(higher=higher, fine="spread < 3"))
    assert compared("my_task.py:Mine", "sgdm", "--set", "sgdm.lr=5") == 0
    for run in store.load_runs("runs"):
        assert (run.status, run.done["why"]) == (
            "diverged",
            "the accuracy is nan though the loss is a number",
        )


def test_a_metric_that_is_nan_before_any_step_is_an_error(capsys):
    own("my_task.py", UNDEFINED.format(higher=True, fine="False"))
    assert compared("my_task.py:Mine", "sgdm") == 1
    assert "the accuracy is nan though the loss is a number, also before any step" in one_line(capsys)


MARKUP = ["runs[old]", "acc[/red]", "[bold]x", ":smile:", "a[/]"]


@pytest.mark.parametrize("name", MARKUP)
def test_brackets_are_text(name, capsys):
    own("my_task.py", f"class Mine(Tiny):\n    metric = {name!r}\n")
    out = f"{name}".replace("/", "")
    words = [
        "compare",
        "my_task.py:Mine",
        "--optimizers",
        "sgdm",
        f"adaxw@{out}",
        "--seeds",
        "1",
        "--epochs",
        "1",
    ]
    assert cli.main([*words, "--out", out, "--report", f"{out}.html", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert name in said
    assert f"runs: {out}/" in said
    assert f"report: {out}.html" in said
    assert f"adaxw@{out}" in said.replace("\n", "")
    assert cli.main(["runs", "list", out]) == 0
    assert f"adaxw@{out}"[:10] in capsys.readouterr().out


def test_brackets_are_text_in_the_bars(tmp_path):
    import io

    from adaxlab.progress import Bars
    from adaxlab.study import Row, Study

    stream = io.StringIO()
    with Bars(stream) as bars:
        bars.start(Study("digits", (Row("sgdm"),), name="s"), 1)
        asked = {"purpose": "final", "row": "x[/red]", "seed": 0}
        bars.running(asked, 1, 2, 0.5)
        failed = store.RunRecord(asked, {}, [], None, tmp_path, "no [/blue]")
        bars.finished(failed)
        bars.bars.refresh()
    assert "x[/red]" in stream.getvalue()
    assert "failed: no [/blue]" in stream.getvalue()


class TestDigest:
    """An edited optimizer is another run, whatever its module is called."""

    @pytest.mark.parametrize(
        "form",
        ["torch_mine.py:Opt", "torchmine:Opt", "torch_pack.inner:Opt", "adaxlab_mine:Opt", "mine.py:Opt"],
    )
    def test_every_module_of_the_user(self, form, monkeypatch):
        place = form.rpartition(":")[0]
        file = Path(place if place.endswith(".py") else place.replace(".", "/") + ".py")
        own(file, "class Opt(PlainSGD):\n    pass\n")
        monkeypatch.syspath_prepend(".")
        before = optimizers.source_digest(form)
        assert before is not None
        file.write_text(file.read_text() + "# edited\n")
        assert optimizers.source_digest(form) not in (None, before)

    def test_a_base_class_in_another_file(self, monkeypatch):
        own("torch_base.py", "class Base(PlainSGD):\n    pass\n")
        own("torch_child.py", "from torch_base import Base\nclass Opt(Base):\n    pass\n")
        monkeypatch.syspath_prepend(".")
        before = optimizers.source_digest("torch_child:Opt")
        Path("torch_base.py").write_text(Path("torch_base.py").read_text() + "# edited\n")
        assert optimizers.source_digest("torch_child:Opt") != before

    def test_torch_and_this_package_have_none(self):
        for name in ("adaxw", "torch:AdamW", "torch.optim:SGD", "adaxlab.muon:MuonAdamW", "adaxw@slow"):
            assert optimizers.source_digest(name) is None, name


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("me@corp/mine.py:Opt", "me@corp/mine.py:Opt"),
        ("me@corp/mine.py:Opt@slow", "me@corp/mine.py:Opt"),
        ("a@b@c/mine.py:Opt", "a@b@c/mine.py:Opt"),
        ("adaxw@slow", "adaxw"),
        ("torch:AdamW@b", "torch:AdamW"),
    ],
)
def test_an_at_sign_in_a_folder(name, base):
    assert optimizers.base(name) == base


def test_a_folder_with_an_at_sign_runs(capsys):
    own("me@corp/mine.py", "class Opt(PlainSGD):\n    pass\n")
    names = ("me@corp/mine.py:Opt", "me@corp/mine.py:Opt@slow")
    more = ["--set", f"{names[0]}.lr=0.1", f"{names[1]}.lr=0.01"]
    assert compared(f"{TINY}:Tiny", *names, more=more) == 0
    assert {(r.row, r.spec["options"]["lr"]) for r in store.load_runs("runs")} == {
        (names[0], 0.1),
        (names[1], 0.01),
    }


def test_guarded_lets_the_labs_errors_and_ctrl_c_pass():
    with pytest.raises(LabError, match=r"^mine$"), failures.guarded("task x"):
        raise LabError("mine")
    with pytest.raises(KeyboardInterrupt), failures.guarded("task x"):
        raise KeyboardInterrupt
    with (
        pytest.raises(StoreError, match=r"task x: ValueError: y \(at test_failures.py:"),
        failures.guarded("task x", StoreError),
    ):
        raise ValueError("y")
