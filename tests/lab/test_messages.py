"""Errors of the command line: one line says what was given, what is allowed and what to do."""

from __future__ import annotations

import pytest
from tiny import one_line, own

from adaxlab import cli, errors


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("given", "known", "expected"),
    [
        ("AdamW", ["adam", "adamw"], ["adamw"]),
        ("Weight-Decay", ["lr", "weight_decay"], ["weight_decay"]),
        ("digitz", ["digits", "gpt"], ["digits"]),
        ("cifar10", ["cifar10/table2", "gpt"], ["cifar10/table2"]),
        ("cifar10/tabel2", ["cifar10/table2", "cifar10/table3"], ["cifar10/table2"]),
        ("", ["adam"], []),
        ("???", ["adam"], []),
    ],
)
def test_nearest(given, known, expected):
    assert errors.nearest(given, known) == expected


MESSAGES = [
    (["compare", "digits", "--optimizers", "AdamW"], "did you mean adamw?"),
    (["compare", "digits", "--optimizers", "adamw,adaxw"], "separated by spaces: --optimizers adamw adaxw"),
    (["compare", "digits", "--optimizers", "adamw,", "adaxw"], "did you mean adamw?"),
    (["compare", "digits", "--optimizers", "torch:adamw"], "did you mean AdamW"),
    (["compare", "Digits"], "did you mean digits?"),
    (["reproduce", "cifar10"], "did you mean cifar10/"),
    (["reproduce", "cifar10/tabel2"], "did you mean cifar10/table2?"),
    (["data", "get", "Cifar-10"], "did you mean cifar10?"),
    (["compare", "digits", "--set", "adaxw.lr=abc"], "lr='abc': is not a number"),
    (["compare", "digits", "--set", "adaxw.lr="], "lr= has no value"),
    (["compare", "digits", "--set", "adaxw.lr=1e999"], "lr=inf: must be > 0 and finite"),
    (["compare", "digits", "--set", "adaxw.lr=1,2"], "is not a number"),
    (["compare", "digits", "--set", "adaxw.weightdecay="], "known are lr, betas, eps, weight_decay"),
    (["compare", "digits", "--set", "adaxw.weightdecay="], "did you mean weight_decay?"),
    (["compare", "digits", "--set", "AdaXW.lr=0.1"], "did you mean adaxw?"),
    (["compare", "digits", "--set", "adaxw.weight_decay=1e999"], "must be >= 0 and finite"),
    (["compare", "digits", "--task-option", "width=1e999"], "must be a whole number"),
    (["compare", "digits", "--lr", "0.1"], "use --set OPTIMIZER.lr=VALUE"),
    (["compare", "digits", "--lr=0.1"], "--set adamw.lr=1e-3"),
    (["compare", "digits", "--weight-decay", "0.1"], "use --set OPTIMIZER.weight_decay=VALUE"),
    (["compare", "digits", "--margin", "nan"], "margin=nan: must be a finite number"),
    (["compare", "digits", "--margin", "inf"], "margin=inf: must be a finite number"),
    (["compare", "digits", "--confidence", "nan"], "confidence=nan"),
    (["compare", "digits", "--checkpoint-seconds", "nan"], "checkpoint-seconds=nan"),
    (["compare", "my_task.py"], "task my_task.py: name one of its classes: my_task.py:MyTask, my_task.py:Other"),
    (["compare", "my_task"], "name one of its classes: my_task:MyTask"),
    (["compare", "my_task.py:"], "name one of its classes: my_task.py:MyTask"),
    (["compare", "my_task.py:Mytask"], "did you mean MyTask?"),
    (["compare", "nowhere.py"], "no such file"),
    (["compare", "digits", "--optimizers", "my_task.py"], "name one of its classes: my_task.py:Opt"),
    (["compare", "digits", "--optimizers", "my_task.py:opt"], "did you mean Opt?"),
    (["compare", "digits", "--optimizers", "nowhere.py:Opt"], "optimizer file"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "expected"), MESSAGES, ids=[" ".join(row[0])[-40:] for row in MESSAGES])
def test_a_message_says_what_to_do(words, expected, capsys):
    own(
        "my_task.py",
        "class MyTask(Tiny):\n    pass\nclass Other(Tiny):\n    pass\nclass Opt(PlainSGD):\n    pass\n",
    )
    assert cli.main(words) == 2
    assert expected in one_line(capsys).replace("my_task.py:Opt:", "")


def test_an_error_of_our_own_is_one_line_too(monkeypatch, capsys):
    from adaxlab import commands

    monkeypatch.setattr(commands.DataList, "run", lambda self: 1 // 0)
    assert cli.main(["data", "list"]) == 1
    assert "unexpected ZeroDivisionError" in one_line(capsys)
    monkeypatch.setenv("ADAX_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["data", "list"])
