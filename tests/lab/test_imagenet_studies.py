"""ImageNet's studies from folders to records: in one go, in pieces, killed, tuned, and never mixed with others."""

from __future__ import annotations

import itertools
import json
import os
import platform
import signal
import subprocess
import sys
import types
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from picture_sets import SMALL, make, small, tiny

from adaxlab.cifar.stack import Recipe as CifarRecipe
from adaxlab.errors import LabError
from adaxlab.imagenet import __main__ as command
from adaxlab.imagenet import book, drive, studies
from adaxlab.imagenet.recipe import Recipe
from adaxlab.imagenet.train import Training
from adaxlab.schedule import factor

SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small(tmp_path_factory.mktemp("pictures") / "set")


def bits(trained):
    return [t.clone() for t in itertools.chain(trained.network.parameters(), trained.network.buffers())]


def test_the_recipe_is_the_papers():
    tiny_, r18, r50 = (book.STUDIES[name] for name in ("tiny", "resnet18", "resnet50"))
    settings = {row.name: (row.options["lr"], row.options["weight_decay"]) for row in tiny_.rows}
    assert settings == {
        "sgdm": (0.1, 1e-4),
        "adamw": (1e-3, 0.1),
        "amsgradw": (1e-3, 0.1),
        "adaxw": (5e-3, 5e-2),
        "adaxw-b2T50": (5e-3, 5e-2),
    }
    long = tiny_.rows[-1].options["betas"][1] * tiny_.recipe.steps(100_000)
    assert long == pytest.approx(50, rel=1e-5)
    total = r18.recipe.steps(1_281_167)
    f = factor(r18.recipe.schedule(0.1), total)
    assert total == 500_500
    at = [f(round(share * total)) for share in (0.025, 0.05, 0.29, 0.31, 0.61, 0.91)]
    assert at == pytest.approx([0.5, 1, 1, 0.1, 0.01, 0.001], rel=1e-3)
    g = factor(r50.recipe.schedule(0.1), total)
    assert 0.1 * g(total - 1) == pytest.approx(1e-6, rel=1e-3)
    assert (r18.recipe.size, r18.recipe.batch, r18.recipe.stem) == (224, 256, "imagenet")


def test_names_are_the_same_everywhere():
    from adaxlab import reproduce

    assert tuple(book.STUDIES) == command.STUDIES
    assert set(studies.NAMES) == {name for name in reproduce.STUDIES if name.startswith("imagenet/")}


def options_of(folder, out):
    words = f"--data {folder} --device cpu --seeds 1 --precision fp32 --workers 1 --out {out}"
    return words.split()


def tinier(monkeypatch, **changes):
    """The study `tiny` with a recipe for pictures of 16 pixels."""
    study = replace(book.STUDIES["tiny"], recipe=replace(SMALL, **changes))
    monkeypatch.setitem(book.STUDIES, "tiny", study)
    monkeypatch.setitem(
        book.STUDIES, "tuning", replace(book.STUDIES["tuning"], recipe=replace(SMALL, epochs=1))
    )
    monkeypatch.setitem(
        book.STUDIES, "tuned", replace(book.STUDIES["tuned"], recipe=replace(SMALL, **changes))
    )


def test_a_study_end_to_end_in_one_go_and_in_pieces(folder, tmp_path, monkeypatch, capsys):
    tinier(monkeypatch)
    assert command.main(["tiny", *options_of(folder, tmp_path / "one")]) == 0
    assert "| AdaX-W, b2·T = 50 | 0.005 |" in capsys.readouterr().out
    whole = drive.records(tmp_path / "one" / "tiny.jsonl")
    assert [r["row"] for r in whole] == ["sgdm", "adamw", "amsgradw", "adaxw", "adaxw-b2T50"]
    for r in whole:
        assert (r["images"], r["test_images"], r["classes"], r["steps"]) == (18, 12, 3, 6)
        assert len(r["curve"]["test_accuracy"]) == 2
        assert r["curve"]["test_accuracy"][-1] == r["test_accuracy"]
        assert str(folder) not in json.dumps(r)
    assert [r["b2_steps"] for r in whole] == [None, None, None, 6e-4, round(6 * book.LONG_MEMORY, 4)]

    ticks = itertools.count()
    clock = types.SimpleNamespace(monotonic=lambda: next(ticks))
    monkeypatch.setattr(drive, "time", clock)
    calls = 0
    while True:
        code = command.main(["tiny", *options_of(folder, tmp_path / "two"), "--seconds", "20"])
        calls += 1
        if code == 0:
            break
        assert code == 3
        assert list((tmp_path / "two").glob("*.pt")) or calls > 1
    assert calls > 3
    pieces = drive.records(tmp_path / "two" / "tiny.jsonl")
    assert [(r["row"], r["curve"]) for r in pieces] == [(r["row"], r["curve"]) for r in whole]
    assert not list((tmp_path / "two").glob("*.pt"))


def repeated(arguments, seconds):
    """The command again and again until it is complete; its exit codes."""
    codes = []
    while not codes or codes[-1] == 3:
        codes.append(command.main([*arguments, "--seconds", str(seconds)]))
    return codes


def test_several_studies_in_one_command_in_one_go_and_in_pieces(folder, tmp_path, monkeypatch):
    """tuned follows tuning; cut at any step, the records are those of one go, and each picture is opened once."""
    tinier(monkeypatch, epochs=1)
    monkeypatch.chdir(tmp_path)
    read = []
    kept = studies.pictures
    monkeypatch.setattr(studies, "pictures", lambda part, *rest: read.append(0) or kept(part, *rest))
    names = ["tiny", "tuning", "tuned", "tiny"]
    assert command.main([*names, *options_of(folder, tmp_path / "one")]) == 0
    assert len(read) == 2  # train and val
    monkeypatch.setattr(drive, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
    codes = repeated([*names, *options_of(folder, tmp_path / "two")], 60)
    assert codes[-1] == 0
    assert len(codes) > 4
    for name, count in (("tiny", 5), ("tuning", 30), ("tuned", 5)):
        whole, pieces = (drive.records(tmp_path / out / f"{name}.jsonl") for out in ("one", "two"))
        assert len(whole) == count
        said = [[(r["row"], r["seed"], r["options"], r["curve"]) for r in found] for found in (whole, pieces)]
        assert said[0] == said[1]
    best = book.best_rates(drive.records(tmp_path / "two" / "tuning.jsonl"))
    assert {r["row"]: r["options"]["lr"] for r in pieces} == best
    assert {path.suffix for path in (tmp_path / "two").iterdir()} == {".jsonl", ".lock"}


def test_a_study_that_does_not_exist_is_named(capsys):
    with pytest.raises(SystemExit):
        command.main(["tiny", "tunning"])
    assert "unknown study 'tunning'; known are tiny, tuning, tuned" in capsys.readouterr().err
    with pytest.raises(LabError, match="no study is named"):
        studies.run([])


def test_a_study_has_one_writer(folder, tmp_path, monkeypatch, capsys):
    """While a process is at a study, another one in the same folder is told who has it."""
    tinier(monkeypatch, epochs=1)
    others = []

    def tell(text):
        if not others and "epoch 1 of" in text:
            environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
            call = [sys.executable, "-c", SECOND, str(folder), str(tmp_path)]
            others.append(subprocess.run(call, env=environment, capture_output=True, text=True))

    studies.run("tiny", tmp_path, data=str(folder), device="cpu", seeds=1, precision="fp32", tell=tell)
    assert others[0].stdout.strip() == (
        f"{tmp_path / 'tiny.jsonl'}: process {os.getpid()} on {platform.node()} writes this study; wait for it, "
        "stop it, or choose another --out"
    )
    assert len(drive.records(tmp_path / "tiny.jsonl")) == 5
    assert command.main(["tiny", *options_of(folder, tmp_path)]) == 0  # and it is free again


SECOND = """
import sys
from adaxlab.errors import Busy
from adaxlab.imagenet import book, studies
from adaxlab.imagenet.recipe import Recipe
from dataclasses import replace
book.STUDIES["tiny"] = replace(book.TINY, recipe=Recipe(epochs=1, batch=7, size=16, stored=16, width=4))
try:
    studies.run("tiny", sys.argv[2], data=sys.argv[1], device="cpu", precision="fp32", tell=lambda text: None)
except Busy as error:
    print(error)
"""


def test_a_checkpoint_of_other_pictures_is_refused(folder, tmp_path, monkeypatch, capsys):
    tinier(monkeypatch)
    monkeypatch.setattr(drive, "time", types.SimpleNamespace(monotonic=itertools.count().__next__))
    assert command.main(["tiny", *options_of(folder, tmp_path / "out"), "--seconds", "14"]) == 3
    assert (tmp_path / "out" / "tiny-sgdm-0.pt").is_file()
    tiny(tmp_path / "others", make(seed=1))
    assert command.main(["tiny", *options_of(tmp_path / "others", tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "tiny-sgdm-0.pt: checkpoint of a run on other pictures" in said
    assert said.count("\n") == 1


def test_runs_with_other_settings_are_not_mixed(folder, tmp_path, monkeypatch):
    tinier(monkeypatch)
    study = replace(book.STUDIES["tiny"], rows=book.TINY.rows[:1])
    monkeypatch.setitem(book.STUDIES, "tiny", study)
    options = dict(data=str(folder), device="cpu", precision="fp32", workers=1)
    studies.run("tiny", tmp_path, **options, seeds=1, epochs=1)
    left = tmp_path / "tiny-sgdm-0.pt"
    left.write_bytes(b"of a process that was killed after it had written its line")
    studies.run("tiny", tmp_path, **options, seeds=1, epochs=1)
    assert not left.exists()
    for changed, message in (
        (dict(epochs=2), "sgdm seed 0 was run with epochs 1, 2 is asked for; choose another folder"),
        (dict(epochs=1, batch=5), "with batch 7, 5 is asked"),
        (dict(epochs=1, precision="fp64"), "with precision 'fp32', 'fp64' is asked"),
    ):
        with pytest.raises(LabError, match=message):
            studies.run("tiny", tmp_path, **{**options, **changed})
    assert len(drive.records(tmp_path / "tiny.jsonl")) == 1
    studies.run("tiny", tmp_path, **options, seeds=2, epochs=1)  # more of the same is no other setting
    assert [r["seed"] for r in drive.records(tmp_path / "tiny.jsonl")] == [0, 1]


def test_a_study_of_the_same_name_on_other_data_is_not_taken_for_this_one(folder, tmp_path, monkeypatch):
    """cifar10/tuning has rows of the same names, and the same --out by default."""
    tinier(monkeypatch)
    theirs = {"study": "tuning", "row": "sgdm lr 1", "seed": 0, "recipe": asdict(CifarRecipe())}
    (tmp_path / "tuning.jsonl").write_text(json.dumps(theirs) + "\n")
    for name in ("tuning", "tuned"):
        with pytest.raises(
            LabError, match=r"tuning.jsonl: holds runs on another data set \(sgdm lr 1 seed 0\)"
        ):
            studies.run(name, tmp_path, data=str(folder), device="cpu", workers=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(name="imagenet/table2"), "unknown study 'imagenet/table2'; known are imagenet/tiny"),
        (dict(name="tiny", precision="fp8"), "unknown precision 'fp8'; known are bf16"),
        (dict(name="tiny", data="/nowhere"), r"/nowhere: no such folder; name one with train/ and val/"),
        (dict(name="tiny", epochs=-1), "epochs=-1: must be >= 1"),
        (dict(name="tiny", device="cuda:97"), r"this machine has \d+ CUDA devices"),
    ],
)
def test_wrong_input(options, message, folder, tmp_path):
    name = options.pop("name")
    with pytest.raises(LabError, match=message):
        studies.run(name, tmp_path, **{"data": str(folder), "device": "cpu", **options})


def test_no_data_says_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.setenv("ADAX_DATA", str(tmp_path))
    with pytest.raises(LabError, match=r"adax data get tiny-imagenet.*data=FOLDER"):
        studies.run("tiny", tmp_path, device="cpu")


# -- killed ---------------------------------------------------------------------------------------------------------

EPOCHS = 6
KILLED = """
import os
import signal
import sys
from dataclasses import replace
from adaxlab.imagenet import book, studies
from adaxlab.imagenet.recipe import Recipe
import torch
torch.set_num_threads(1)
study = replace(book.TINY, rows=book.TINY.rows[3:4], recipe=Recipe(**eval(sys.argv[3])))
book.STUDIES["tiny"] = study

def tell(text):
    if "epoch 2 of" in text:
        os.kill(os.getpid(), signal.SIGKILL)

given = dict(data=sys.argv[1], device="cpu", seeds=1, precision="fp32", checkpoint_seconds=0.0)
studies.run("tiny", sys.argv[2], tell=tell, **given)
"""


def test_kill_9_in_the_middle_and_the_same_bits(folder, tmp_path, monkeypatch):
    sizes = dict(epochs=EPOCHS, batch=9, size=16, stored=16, width=4)
    environment = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
    arguments = [sys.executable, "-c", KILLED, str(folder), str(tmp_path / "killed"), repr(sizes)]
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert torch.load(tmp_path / "killed" / "tiny-adaxw-0.pt", weights_only=True)["at"] == [1, 2, 4]

    study = replace(book.TINY, rows=book.TINY.rows[3:4], recipe=Recipe(**sizes))
    monkeypatch.setitem(book.STUDIES, "tiny", study)
    ends = []
    kept = Training._end_epoch
    monkeypatch.setattr(
        Training, "_end_epoch", lambda self: (kept(self), ends.append((self.epoch, bits(self))))
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for out in ("killed", "whole"):
            studies.run("tiny", tmp_path / out, data=str(folder), device="cpu", seeds=1, precision="fp32")
    finally:
        torch.set_num_threads(threads)
    assert [epoch for epoch, _ in ends].count(EPOCHS) == 2
    resumed, whole = (found for epoch, found in ends if epoch == EPOCHS)
    assert all(torch.equal(a, b) for a, b in zip(resumed, whole, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(whole, ends[-2][1], strict=True))
    killed, undisturbed = (drive.records(tmp_path / out / "tiny.jsonl")[0] for out in ("killed", "whole"))
    assert killed["curve"] == undisturbed["curve"]
    assert EPOCHS < len(ends) < 2 * EPOCHS  # what the killed process did was not done again
