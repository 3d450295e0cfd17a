"""Any optimizer: splits, factories, those that average their weights; what cannot be built is said before any run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from any_task import HIDDEN, Letters, Net

from adaxlab import compare, joint, optimizer_options, optimizers, options, spec, study
from adaxlab import task as tasks
from adaxlab.errors import LabError
from adaxlab.execute import process
from adaxlab.loop import Loop
from adaxlab.settings import Settings
from adaxopt import LogTime

HERE = str(Path(__file__).with_name("any_task.py"))
needs_muon = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon came with torch 2.9"
)


def net():
    torch.manual_seed(0)
    return Net()


def built(name, given=None, model=None):
    model = model or net()
    return optimizers.build(name, model.parameters(), optimizer_options.complete(name, given), model)


def names_of(model, groups):
    inside = {id(p) for group in groups for p in group["params"]}
    return {name for name, p in model.named_parameters() if id(p) in inside}


class TestSplit:
    def test_hidden_matrices_go_to_the_first_the_rest_to_the_second(self):
        model = net()
        made = built("torch:SGD+adamw", {"first.lr": 0.1}, model)
        first, second = made.parts
        assert names_of(model, first.param_groups) == set(joint.hidden_matrices(model)) == HIDDEN
        assert names_of(model, second.param_groups) == {name for name, _ in model.named_parameters()} - HIDDEN

    @pytest.mark.parametrize(
        ("change", "left_out"),
        [
            (lambda model: setattr(model.layer.linear1.weight, "is_table", True), "layer.linear1.weight"),
            (lambda model: model.layer.linear2.weight.requires_grad_(False), "layer.linear2.weight"),
        ],
    )
    def test_marked_and_frozen_parameters_are_left_out(self, change, left_out):
        model = net()
        change(model)
        assert set(joint.hidden_matrices(model)) == HIDDEN - {left_out}

    def test_a_tied_output_layer_is_an_embedding(self):
        model = net()
        model.head.weight = model.embedding.weight
        assert set(joint.hidden_matrices(model)) == HIDDEN

    def test_it_is_the_two_apart(self):
        """Bit for bit what two optimizers do, each on its own parameters, in float64."""
        models = [net().double() for _ in range(2)]
        given = {"lr": 1e-2, "second.lr": 3e-3, "weight_decay": 0.1, "momentum": 0.9}
        together = [built("torch:SGD+torch:AdamW", given, models[0])]
        hidden = joint.hidden_matrices(models[1])
        rest = [p for name, p in models[1].named_parameters() if name not in hidden]
        apart = [
            torch.optim.SGD(hidden.values(), lr=1e-2, momentum=0.9, weight_decay=0.1),
            torch.optim.AdamW(rest, lr=3e-3, weight_decay=0.1),
        ]
        batch = Letters().data()["test"]
        for _ in range(2):
            for model, mine in zip(models, (together, apart), strict=True):
                Letters().loss(model, batch).backward()
                for optimizer in mine:
                    optimizer.step()
                    optimizer.zero_grad()
        for a, b, c in zip(*(m.parameters() for m in models), net().double().parameters(), strict=True):
            assert torch.equal(a, b)
            assert not torch.equal(a, c)

    def test_groups_of_the_task_are_divided_and_keep_their_settings(self):
        model = net()
        groups = [
            {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.3},
            {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
        ]
        given = optimizer_options.complete("torch:SGD+adamw", {})
        made = optimizers.build("torch:SGD+adamw", groups, given, model)
        assert [group["weight_decay"] for group in made.param_groups] == [0.3, 0.3, 0.0]
        assert names_of(model, made.param_groups[:1]) == HIDDEN

    @needs_muon
    @pytest.mark.parametrize("name", ["muon", "torch:Muon", "muon+adamw", "muon@again"])
    def test_muon_alone_stands_for_a_split_with_adamw(self, name):
        muon, adamw = built(name).parts
        assert (type(muon).__name__, type(adamw).__name__) == ("Muon", "AdamW")
        assert muon.param_groups[0]["adjust_lr_fn"] == "match_rms_adamw"
        assert muon.param_groups[0]["lr"] == adamw.param_groups[0]["lr"] == 1e-3

    @needs_muon
    def test_options_say_whose_they_are(self):
        assert optimizer_options.complete("muon+adaxw", {"ns_steps": 4, "second.weight_decay": 0.2}) == {
            "lr": 0.001, "first.eps": 1e-7, "second.eps": 1e-12, "first.weight_decay": 0.1, "second.weight_decay": 0.2,
            "adjust_lr_fn": "match_rms_adamw", "betas": [0.9, 1e-4], "ns_steps": 4,
        }  # fmt: skip
        assert options.per_optimizer(["muon+adaxw.second.lr=1e-3", "muon+adaxw.lr=2e-3"]) == {
            "muon+adaxw": {"second.lr": 1e-3, "lr": 2e-3}
        }

    def test_an_optimizer_that_needs_matrices_in_one_group(self, tmp_path):
        with pytest.raises(LabError, match="Matrices takes one group of matrices"):
            built(f"{HERE}:Matrices")
        given = spec.make(
            study="s", task=f"{HERE}:Letters", optimizer=f"{HERE}:Matrices+adamw", options={"scale": 0.5}, epochs=1,
            batch_size=16, seed=0,
        )  # fmt: skip
        assert len(given["optimizer_source"]) == 16
        assert process.run(given, tmp_path).done["status"] == "finished"

    def test_a_folder_may_have_a_plus_in_its_name(self, tmp_path):
        place = tmp_path / "c++"
        place.mkdir()
        (place / "mine.py").write_text(Path(HERE).read_text())
        assert optimizers.parts(f"{place}/mine.py:Matrices+adamw") == (f"{place}/mine.py:Matrices", "adamw")
        assert type(built(f"{place}/mine.py:Averages")).__name__ == "Averages"


class TestFactory:
    def test_it_receives_the_model_and_the_options(self):
        made = built(f"{HERE}:two_groups", {"lr": 3e-3, "weight_decay": 0.2})
        assert [group["weight_decay"] for group in made.param_groups] == [0.2, 0.0]
        assert {group["lr"] for group in made.param_groups} == {3e-3}

    def test_an_edit_of_its_file_is_another_run(self, tmp_path):
        digests = []
        for more in ("", "\n# edited\n"):
            (tmp_path / "own.py").write_text(Path(HERE).read_text() + more)
            digests.append(optimizers.source_digest(f"{tmp_path}/own.py:two_groups"))
        assert digests[0] != digests[1]


SETTLED = [
    ("sgdm", {"momentum": 0.5}, {"betas": [0.5, 0.0]}),
    ("nosadam", {"c": 0.25}, {"betas": [0.9, 0.25]}),
    ("adamw", {"memory": LogTime(8)}, {"memory": "log_time", "betas": [0.9, 8]}),
    (
        "adaxw",
        {"memory": "Fading(.99).floor(0.125).freeze(9)", "betas": (0.5, None)},
        {"memory": "fading floor 0.125 freeze 9", "betas": [0.5, 0.99]},
    ),
    (
        "adaxw",
        {"memory": "fading freeze 9", "betas": (0.5, 0.99)},
        {"memory": "fading freeze 9", "betas": [0.5, 0.99]},
    ),
    (
        "torch:SGD+adaxw",
        {"second.memory": "Power(0.5)", "first.lr": 0.1},
        {"second.memory": "power", "second.betas": [0.9, 0.5], "first.lr": 0.1},
    ),
    (f"{HERE}:two_groups", {"weight_decay": 0.5}, {"weight_decay": 0.5}),
]


@pytest.mark.parametrize(("name", "given", "wanted"), SETTLED)
def test_what_sets_one_of_the_betas_is_recorded_as_one(name, given, wanted):
    found = optimizer_options.complete(name, given)
    assert {key: found.get(key) for key in wanted} == wanted
    assert "momentum" not in found
    assert optimizer_options.complete(name, found) == found
    assert built(name, given)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("adaxw", {"memory": "LogTime(8)", "betas": 0.9}),
        ("adamw+adaxw", {"second.memory": 8, "second.betas": 0.9}),
    ],
)
def test_a_memory_with_betas_that_are_no_pair(name, given):
    with pytest.raises(LabError, match=r"betas=0\.9: must be a pair \(b1, b2\)$"):
        compare.rows((name,), {name: given})


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        (f"{HERE}:forgets", {}, "leaves out 17 parameters (embedding.weight, ...)"),
        (f"{HERE}:nothing", {}, "gave a NoneType without step, zero_grad"),
        (f"{HERE}:without_lr", {}, "has no argument lr, which tuning and schedules use"),
        (f"{HERE}:Scaled", {}, "has no argument lr, which tuning and schedules use"),
        (f"{HERE}:absent", {}, "known are two_groups, forgets, nothing, Scaled"),
        (f"{HERE}:two_groups", {"beta": 1}, "known are lr, weight_decay"),
        (f"{HERE}:two_groups+adamw", {}, "two_groups is a factory and takes the whole model"),
        ("torch:SGD+adamw+adaxw", {}, "has more than two parts"),
        ("adamx+adamw", {}, "unknown optimizer 'adamx'"),
        (
            "torch:SGD+adamw",
            {"momentun": 0.9},
            "unknown option of torch:SGD+adamw 'momentun'; known are lr, betas, eps, weight_decay, momentum",
        ),
        ("torch:SGD+adamw", {"third.lr": 0.9}, "unknown option of torch:SGD+adamw 'third.lr'"),
        ("adamw", {"second.lr": 0.9}, "second.lr"),
        ("torch:LBFGS", {}, "its step() needs a closure"),
    ],
)
def test_what_cannot_be_built_is_said_before_any_run(name, given, words, tmp_path):
    made = study.Study(f"{HERE}:Letters", compare.rows((name, "adam"), {name: given}), "s", epochs=1)
    with pytest.raises(LabError) as caught:
        compare.compare(made, tmp_path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("spec.json"))


def test_a_model_without_hidden_matrices_has_no_use_for_a_split():
    with pytest.raises(LabError, match=r"no hidden matrix for torch:SGD .* use adamw alone"):
        built("torch:SGD+adamw", {}, torch.nn.Linear(3, 2))


def test_the_options_are_checked_without_a_trace_in_the_generators(tmp_path):
    state = torch.random.get_rng_state()
    compare.check(
        study.Study(f"{HERE}:Letters", compare.rows(("torch:SGD+adamw",)), "s", epochs=1).complete()
    )
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize("name", [f"{HERE}:Averages", f"torch:SGD+{HERE}:Averages"])
def test_an_optimizer_that_averages_is_told_when_training_stops(name, tmp_path, monkeypatch):
    made, modes = [], []
    loss = Letters.loss

    def looked(self, model, batch):
        inner = made[-1].optimizer
        modes.append((model.training, getattr(inner, "parts", [inner])[-1].mode))
        return loss(self, model, batch)

    class Kept(Loop):
        def __init__(self, *rest):
            super().__init__(*rest)
            made.append(self)

    task = tasks.find(f"{HERE}:Letters")
    loss = task.loss
    monkeypatch.setattr(task, "loss", looked)
    monkeypatch.setattr(process, "Loop", Kept)
    given = spec.make(
        study="s",
        task=f"{HERE}:Letters",
        optimizer=name,
        options={"lr": 0.1},
        epochs=2,
        batch_size=16,
        seed=0,
    )
    record = process.run(given, tmp_path, Settings(checkpoint_seconds=0))
    assert record.done["status"] == "finished"
    assert set(modes) == {(True, "train"), (False, "eval")}
    last = made[-1].optimizer
    assert getattr(last, "parts", [last])[-1].mode == "eval"  # the weights that were measured are the result
