"""The command on the page of a report: parsed by the real command line, it asks for the same study."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from adaxlab import compare, repeat_command
from adaxlab.study import Row, Study


@pytest.mark.parametrize(
    "words",
    [
        "--optimizers adamw adaxw --tune 3",
        "--optimizers sgdm adaxw --seeds 2 --epochs 7 --batch-size 32 --schedule step,milestones=0.4/0.9,gamma=0.2",
        "--optimizers adamw adaxw --tune 2 --tune-over lr weight_decay b2 clip_update=1:4 --sampler random",
        "--optimizers adamw adaxw --tune 1 --tune-over lr weight_decay --sampler random --base-seed 2",
        "--optimizers sgdm adaxw adaxw@slow --baseline adaxw --set adaxw@slow.weight_decay=0.1 --margin 0.01",
        "--optimizers adaxw adamw --set adaxw.memory=Growing(0.001).floor(0.01) adamw.eps=1e-7 --target 0.5",
        "--optimizers adamw torch:SGD+adaxw --tune 0 --set adamw.lr=0.1 torch:SGD+adaxw.second.lr=1 --confidence 0.9",
        "--optimizers adaxw --schedule cosine,warmup=0.05 --epochs 2 --set adaxw.betas=0.9,0.001 --study mine",
    ],
)
def test_the_command_of_a_stored_study_asks_for_the_same_study(words):
    """Options that a run derives, such as b2 = 3/T, are not set; the rule, the baseline and second names are kept."""
    lab = pytest.importorskip("adaxlab.commands")
    asked = lab.parse(["compare", "digits", *words.split()]).of("digits", False).complete()
    line = repeat_command.command(asked, [row.name for row in asked.rows])
    again = lab.parse(shlex.split(line)[1:]).of("digits", False).complete()
    assert again.data() == asked.data()


def test_a_plan_that_compare_cannot_express_has_no_command():
    asked = Study(task="digits", rows=(Row("adaxw", b2_steps=10.0),), seeds=1, name="s").complete()
    assert repeat_command.command(asked, ["adaxw"]) == ""
    known = replace(asked, rows=compare.rows(["adaxw"]))
    assert repeat_command.command(known, ["adaxw"]).startswith(
        "adax compare digits --optimizers adaxw --seeds 1 --tune 0"
    )
    assert repeat_command.command(known, ["adaxw", "adamw"]) == "", "runs of other rows"
