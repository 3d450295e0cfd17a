"""The command line: what it prints, its exit codes, and one line for everything that goes wrong."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tiny import TINY

import adaxopt
from adaxlab import cli, options, store
from adaxlab.paper import catalogue

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_spirals.py"
QUICK = ["--seeds", "2", "--tune", "0", "--epochs", "1", "--optimizers", "sgdm", "adaxw"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("cli")
    assert cli.main(["compare", f"{TINY}:Tiny", *QUICK, "--out", str(root), "--study", "one", "--quiet"]) == 0
    return str(root)


def launch(*words, **how):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "adaxlab.cli", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **how,
    )  # fmt: skip


BAD = [
    (["compare", "digitz"], "unknown task 'digitz'; known are digits"),
    (["compare", "digits", "--optimizers", "adamx"], "unknown optimizer 'adamx'; known are sgdm, adagrad"),
    (["compare", "digits", "--optimizers", "torch:Adam2"], "unknown optimizer in torch 'Adam2'"),
    (["compare", "digits", "--set", "adaxw.lrr=1"], "lrr"),
    (["compare", "digits", "--set", "lr=1"], "must be optimizer.option=value"),
    (["compare", "digits", "--set", "adam.lr=1"], "unknown optimizer in --set 'adam'"),
    (["compare", "digits", "--set", "adaxw.lr=0"], "lr=0: must be > 0"),
    (["compare", "digits", "--set", "adaxw.lr=fast"], "lr='fast': is not a number"),
    (["compare", "digits", "--set", "adaxw.stat_dtype=uint8"], "did you mean state_dtype?"),
    (["compare", "digits", "--set", "adaxw.total_steps=100"], "total_steps=100: b2 is 3/T already"),
    (["compare", "digits", "--set", "adaxw.memory=fading"], "write adaxw.memory=Fading(b2) with a number"),
    (["compare", "digits", "--set", "adaxw.memory=log_time"], "write adaxw.memory=LogTime(delta) with"),
    (
        ["compare", "digits", "--set", "adaxw.memory=LogTime"],
        "memory=LogTime: must be one of Growing(b2), Fading",
    ),
    (
        ["compare", "digits", "--set", "adaxw.memory=LogTime(-8)"],
        "memory=LogTime(-8): LogTime: delta=-8: must",
    ),
    (["compare", "digits", "--set", "adaxw.memory=print(8)"], "memory=print(8): must be one of Growing(b2)"),
    (
        ["compare", "digits", "--set", "adaxw.memory=LogTime(8)", "adaxw.betas=0.9,8"],
        "memory=LogTime(8), betas=(0.9, 8): a memory has its own number",
    ),
    (["compare", "digits", "--schedule", "cosin"], "unknown schedule 'cosin'"),
    (["compare", "digits", "--epochs", "0"], "epochs=0: must be >= 1"),
    (["compare", "digits", "--seeds", "0"], "seeds=0: must be >= 1"),
    (["compare", "digits", "--threads", "0"], "threads=0: must be >= 1"),
    (["compare", "digits", "--jobs", "0"], "jobs=0: must be >= 1"),
    (["compare", "digits", "--device", "cuda:99"], "device='cuda:99'"),
    (["compare", "digits", "--task-option", "depth=3"], "cannot be made with options {'depth': 3}"),
    (["compare", "digits", "--task-option", "depth=3"], "its options are width"),
    (["compare", "voc", "--task-option", "steps=many"], "task voc: steps=many: must be a whole number"),
    (
        ["compare", "imagenet", "--task-option", "width=big"],
        "task imagenet: width=big: must be a whole number",
    ),
    (["compare", "language", "--task-option", "dropout=no"], "task language: dropout=no: must be a number"),
    (["compare", "digits", "--task-option", "depth"], "'depth': must be name=value"),
    (
        ["compare", "digits", "sorting", "--task-option", "width=8"],
        "--task-option width=8: is for one task, 2 are",
    ),
    (["compare", "digits", "digits"], "digits, digits: name each task once"),
    (["compare", "digits", "--confidence", "95"], "confidence=95.0: must be in (0, 1)"),
    (["compare", "digits", "--baseline", "adam"], "unknown baseline 'adam'"),
    (["compare", "digits", "--study", "../up"], "it names a folder"),
    (["compare", f"{TINY}:NoMetric"], "lacks metric, loss"),
    (["reproduce", "sinthetic"], "unknown study 'sinthetic'; known are"),
    (["reproduce", "synthetic", "--set", "colour=3"], "colour"),
    (
        ["reproduce", "synthetic", "--set", "a=1", "--set", "a=2"],
        "a=2: a was given before, as 1; give it once",
    ),
    (["compare", "digits", "--set", "adamw.lr=1", "adamw.lr=2"], "lr was given before, as 1; give it once"),
    (["demo", "--seeds", "0"], "seeds=0: must be >= 1"),
    (["reproduce", "gpt", "--seconds", "-1"], "seconds=-1.0: must be >= 0 (0: no limit)"),
    (["reproduce", "gpt", "--seconds", "nan"], "seconds=nan: must be >= 0 (0: no limit)"),
    (["reproduce", "gpt", "--set", "layers=two"], "task gpt: layers=two: must be a whole number"),
    (
        ["reproduce", "imagenet/tiny", "--set", "width=soon"],
        "task imagenet: width=soon: must be a whole number",
    ),
    (
        ["reproduce", "imagenet/tiny", "--execution", "graph=1"],
        "--execution graph=1: must be true or false or none",
    ),
    (["reproduce", "voc/camvid", "--set", "steps=1.5"], "task voc: steps=1.5: must be a whole number"),
    (["reproduce", "cifar10/table2", "--set", "data=2012"], "data=2012: must be a text"),
    (
        ["reproduce", "language/late-activation", "--set", "steps=35"],
        "steps=35: must be > 35, because b2*T = 35",
    ),
    (["reproduce", "gpt", "--data", "nowhere"], "nowhere: no such file or folder; name a file"),
    (["data", "get", "mnist"], "unknown data set 'mnist'; known are cifar10"),
]


@pytest.mark.parametrize(("words", "expected"), BAD, ids=[" ".join(row[0])[-45:] for row in BAD])
def test_bad_input_is_one_line_and_exit_code_2(words, expected, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("adax: ")
    assert err.count("\n") == 1
    assert expected in err
    assert not list(tmp_path.rglob("spec.json"))  # nothing was begun


FAILED = [
    (["compare", f"{TINY}:NanAtOnce", *QUICK, "--quiet"], "the loss is nan on the first batch"),
    (["compare", f"{TINY}:Raises", *QUICK, "--quiet"], "ValueError: the third column is empty (at tiny.py:"),
    (["report", "nowhere"], "nowhere: no such file or folder"),
    (["runs", "list", "nowhere"], "nowhere: no such file or folder"),
]


@pytest.mark.parametrize(("words", "expected"), FAILED, ids=[row[0][1][-12:] for row in FAILED])
def test_a_failed_run_is_one_line_and_exit_code_1(words, expected, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert expected in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["compare", "--help"], 0),
        ([], 2),
        (["compare"], 2),
        (["compare", "digits", "--sede", "1"], 2),
    ],
)
def test_help_and_wrong_flags(words, code, capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert caught.value.code == code
    out, err = capsys.readouterr()
    assert (out if code == 0 else err).strip()


def test_the_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"adax {adaxopt.__version__}\n"


def test_compare_ends_with_a_table(runs, capsys):
    words = ["compare", f"{TINY}:Tiny", *QUICK, "--out", runs, "--study", "one"]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert "95%" in out
    assert "adaxw" in out
    assert str(Path(runs) / "one") in out
    assert "4 runs" in err


def test_several_tasks_end_with_a_summary(tmp_path, capsys):
    words = ["compare", f"{TINY}:Tiny", f"{TINY}:TinyLoss", *QUICK, "--out", str(tmp_path), "--study", "two"]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert out.count("No verdict: ") == 2
    assert out.index("All tasks") < out.index("Time to target")
    assert "estimate: 4 runs, about" in err
    assert {p.name for p in tmp_path.iterdir()} == {"two-Tiny", "two-TinyLoss"}


def test_the_answer_comes_first(tmp_path, capsys):
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "sgdm", "adaxw", "--seeds", "3", "--tune", "2", "--epochs", "1",
             "--out", str(tmp_path), "--report", str(tmp_path / "page.html"), "--quiet"]  # fmt: skip
    assert cli.main(words) == 0
    first, code, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("Use ")
    assert "n = 3" in first
    assert code.startswith("import adaxopt; optimizer = ")
    assert first.split(" at ")[0] in (tmp_path / "page.html").read_text()


def test_options_reach_the_runs(tmp_path, capsys):
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "adaxw", "torch:AdamW", "--seeds", "1", "--tune", "0",
             "--epochs", "2", "--batch-size", "32", "--schedule", "step,milestones=0.5,gamma=0.5,warmup=1",
             "--task-option", "rows=64", "--set", "adaxw.weight_decay=0.3", "--set", "torch:AdamW.betas=0.9,0.95",
             "--out", str(tmp_path)]  # fmt: skip
    assert cli.main(words) == 0
    specs = {r.spec["optimizer"]: r.spec for r in store.load_runs(tmp_path)}
    assert specs["adaxw"]["options"]["weight_decay"] == 0.3
    assert specs["torch:AdamW"]["options"]["betas"] == [0.9, 0.95]
    assert specs["adaxw"]["schedule"] == {"name": "step", "warmup": 1, "milestones": [0.5], "gamma": 0.5}
    assert (specs["adaxw"]["batch_size"], specs["adaxw"]["task_options"]) == (32, {"rows": 64})
    lr = [line["lr"] for line in store.load_runs(tmp_path)[0].metrics]
    assert lr[1] == pytest.approx(lr[0] / 2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("compare t --set a.b=1 --set c.d=2", "compare t --set a.b=1 c.d=2"),
        (
            "compare t --set a.b=1 x.y=3 --out r --set=c.d=2 e.f=-1 --quiet",
            "compare t --set a.b=1 x.y=3 c.d=2 e.f=-1 --out r --quiet",
        ),
        (
            "compare t --optimizers a --set q.r=1 --optimizers b --set s.t=2 --seeds 2",
            "compare t --optimizers a b --set q.r=1 s.t=2 --seeds 2",
        ),
        (
            "compare --set a.b=1 --task-option w=2 --set c.d=2 --task-option v=3",
            "compare --set a.b=1 c.d=2 --task-option w=2 v=3",
        ),
        ("compare --task_option w=2 --task-option v=3", "compare --task_option w=2 v=3"),
        ("compare --set a.b=1 -- --set", "compare --set a.b=1 -- --set"),
        ("compare t --set= --set a.b=1", "compare t --set  a.b=1"),
        ("compare t --seeds 2 --epochs=3", "compare t --seeds 2 --epochs=3"),
        ("runs list --json", "runs list --json"),
    ],
)
def test_a_flag_that_comes_twice_loses_nothing(words, expected):
    assert options.gathered(words.split(" ")) == expected.split(" ")


class TestRuns:
    def listed(self, capsys, *words):
        assert cli.main(["runs", "list", *words, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    def test_list_and_filters(self, runs, capsys):
        assert len(self.listed(capsys, runs)) == 4
        assert {r["spec"]["optimizer"] for r in self.listed(capsys, runs, "--optimizer", "adaxw")} == {
            "adaxw"
        }
        assert self.listed(capsys, runs, "--status", "diverged") == []
        assert len(self.listed(capsys, runs, "--purpose", "final", "--study", "one")) == 4
        assert cli.main(["runs", "list", runs]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= 80
        assert all(any(row["run"][:8] in line for line in lines) for row in self.listed(capsys, runs))
        assert cli.main(["runs", "list", runs]) == 0
        assert "finished" in capsys.readouterr().out

    def test_an_unknown_filter(self, runs, capsys):
        assert cli.main(["runs", "list", runs, "--optimizer", "adam"]) == 2
        assert "known are adaxw, sgdm" in capsys.readouterr().err

    def test_show(self, runs, capsys):
        name = self.listed(capsys, runs)[0]["run"]
        assert cli.main(["runs", "show", name[:6], "--path", runs]) == 0
        out = capsys.readouterr().out
        assert '"model_sha256"' in out
        assert '"versions"' in out
        assert cli.main(["runs", "show", "zzz", "--path", runs]) == 2
        assert "names no run" in capsys.readouterr().err

    def test_export_is_read_as_a_store(self, runs, tmp_path, capsys):
        out = str(tmp_path / "records" / "one.jsonl")
        assert cli.main(["runs", "export", out, "--path", runs]) == 0
        capsys.readouterr()
        assert self.listed(capsys, out) == sorted(self.listed(capsys, runs), key=lambda r: r["run"])

    def test_a_folder_of_another_version_is_named_and_left(self, runs, tmp_path, capsys):
        import shutil

        shutil.copytree(runs, tmp_path / "runs")
        victim = next((tmp_path / "runs").rglob("spec.json"))
        victim.write_text(victim.read_text().replace('"schema": 2', '"schema": 1'))
        assert len(self.listed(capsys, str(tmp_path / "runs"))) == 3
        assert cli.main(["runs", "list", str(tmp_path / "runs")]) == 0
        err = capsys.readouterr().err
        assert str(victim.parent) in err
        assert "schema 1" in err


def test_report_is_written(runs, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert cli.main(["report", runs, "--out", str(out)]) == 0
    assert "adaxw" in out.read_text()
    assert str(out) in capsys.readouterr().out


def test_the_example_task_runs(tmp_path, capsys):
    words = [
        "compare",
        f"{EXAMPLE}:TwoSpirals",
        "--optimizers",
        "adamw",
        "adaxw",
        "--seeds",
        "1",
        "--tune",
        "0",
        "--epochs",
        "2",
    ]
    assert cli.main([*words, "--out", str(tmp_path), "--quiet"]) == 0
    assert {r.status for r in store.load_runs(tmp_path)} == {"finished"}


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def test_names_and_pages_in_an_ascii_locale(tmp_path):
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    plain["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    task, out = tmp_path / "tâche.py", tmp_path / "läufe"
    task.write_bytes(Path(TINY).read_bytes())
    words = ["compare", f"{task}:Tiny", *QUICK, "--out", out, "--report", out / "é.html", "--quiet"]
    done = subprocess.run([sys.executable, "-m", "adaxlab.cli", *words], env=plain, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert rb"l\udcc3\udca4ufe" in done.stdout
    assert "tâche.py" in (out / "é.html").read_text(encoding="utf-8")


def test_interrupted_while_torch_is_imported(monkeypatch, capsys):
    def interrupted(name, *_):
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr("builtins.__import__", interrupted)
        code = cli.main(["runs", "list"])
    assert code == 130
    assert capsys.readouterr().err == "adax: interrupted; resume with: adax runs list\n"


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_says_how_to_go_on(signum, code, tmp_path):
    words = [
        "compare",
        f"{TINY}:Slow",
        "--optimizers",
        "adaxw",
        "--seeds",
        "1",
        "--tune",
        "0",
        "--out",
        tmp_path,
    ]
    process = launch(*words)
    wait_for(lambda: any(p.stat().st_size for p in tmp_path.rglob("metrics.jsonl")))
    process.send_signal(signum)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert err.splitlines()[-1].startswith("adax: stopped ")
    assert f"resume with: adax compare {TINY}:Slow" in err
    assert len(list(tmp_path.rglob("checkpoint.pt"))) == 1
    assert cli.main([*map(str, words), "--quiet"]) == 0
    [record] = store.load_runs(tmp_path)
    assert record.done["sessions"] == 2


def test_a_full_disk_is_one_line_and_nothing_is_lost(tmp_path):
    words = ["compare", f"{TINY}:Tiny", "--optimizers", "adaxw", "--seeds", "1", "--tune", "0", "--epochs", "3",
             "--checkpoint-seconds", "0"]  # fmt: skip

    def limit():  # no file may grow beyond 4 kB: JSON fits, a checkpoint does not
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    process = launch(*words, "--out", tmp_path / "full", "--quiet", preexec_fn=limit)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert err.count("\n") == 1
    assert "checkpoint.pt: File too large; free some space and repeat the command to resume" in err
    assert not list(tmp_path.rglob("*.tmp"))
    for place in ("full", "roomy"):
        assert cli.main([*words, "--out", str(tmp_path / place), "--quiet"]) == 0
    [full], [roomy] = (store.load_runs(tmp_path / place) for place in ("full", "roomy"))
    assert full.done["model_sha256"] == roomy.done["model_sha256"]


def test_without_the_extra_it_says_what_to_install(tmp_path):
    (tmp_path / "tyro.py").write_text("raise ModuleNotFoundError('no tyro', name='tyro')\n")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-m", "adaxlab.cli", "demo"], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2
    assert done.stderr == (
        'adax: the command line needs tyro; pip install "adaxopt[lab]" (from a checkout: pip install -e ".[lab]")\n'
    )


def test_reproduce_alone_lists_every_study_on_a_line(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["reproduce"]) == 0
    said = capsys.readouterr().out
    listed = [line.split()[0] for line in said.splitlines() if line.startswith("  ")]
    assert sorted(listed) == sorted(catalogue.studies())
    assert all(len(line.rstrip()) <= 80 for line in said.splitlines())
