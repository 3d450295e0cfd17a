"""What people write around an optimizer: groups without decay, steps inside the backward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from adaxopt import AdaXW, create, param_groups, step_in_backward
from runner import BACKENDS, FUSES, same, snapshot


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(11, 8)
        self.pos_embed = nn.Parameter(torch.zeros(1, 5, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)
        self.norms = nn.ModuleList(
            [nn.LayerNorm(8), nn.LayerNorm([5, 8]), nn.BatchNorm1d(8), nn.GroupNorm(2, 8), nn.RMSNorm(8)]
        )
        self.conv = nn.Conv1d(8, 8, 3)
        self.rnn = nn.LSTM(8, 4)
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(8, 11)
        self.head.weight = self.tok.weight  # tied
        self.frozen = nn.Linear(2, 2).requires_grad_(False)


def names_of(model, group):
    return {name for name, p in model.named_parameters() if any(p is q for q in group["params"])}


def test_param_groups():
    model = Model()
    decaying, rest = param_groups(model, 0.05)
    assert (decaying["weight_decay"], rest["weight_decay"]) == (0.05, 0.0)
    assert names_of(model, decaying) == {
        "tok.weight",
        "pos_embed",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
        "conv.weight",
        "rnn.weight_ih_l0",
        "rnn.weight_hh_l0",
    }
    together = [p for g in (decaying, rest) for p in g["params"]]
    assert len({id(p) for p in together}) == len(together)  # tied weights once
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert names_of(model, decaying) | names_of(model, rest) == trained
    assert {"norms.1.weight", "attention.bias_k", "scale", "head.bias"} <= names_of(model, rest)


@pytest.mark.parametrize("names", [("pos_embed", "tok.weight"), ["pos_embed", "tok.weight"]])
def test_more_names_without_decay(names):
    model = Model()
    decaying, rest = param_groups(model, 0.05, no_decay=names)
    assert {"pos_embed", "tok.weight"} <= names_of(model, rest)
    assert "conv.weight" in names_of(model, decaying)


def test_one_name_without_decay_is_a_name_and_not_its_letters():
    model = Model()
    decaying, rest = param_groups(model, 0.05, no_decay="pos_embed")
    assert "pos_embed" in names_of(model, rest)
    assert "tok.weight" in names_of(model, decaying)


@pytest.mark.parametrize("names", ["typo.weight", ("pos_embed", "typo.weight"), ["tok"]])
def test_a_name_without_decay_that_no_parameter_has(names):
    wrong = "tok" if "tok" in names else "typo.weight"
    with pytest.raises(ValueError, match=f"no_decay='{wrong}': no parameter name ends with it"):
        param_groups(Model(), 0.05, no_decay=names)


def test_a_tied_parameter_has_two_names_and_a_frozen_one_still_has_its_own():
    model = Model()
    _, rest = param_groups(model, 0.05, no_decay=("head.weight", "frozen.weight"))
    assert "tok.weight" in names_of(model, rest)
    assert "frozen.weight" not in names_of(model, rest)


@pytest.mark.parametrize("given", [torch.optim.AdamW, torch.optim.SGD])
def test_a_step_in_backward_is_for_optimizers_of_this_package(given):
    optimizer = given(nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(
        TypeError, match=rf"a torch\.optim.*{given.__name__} was given; must be an optimizer of adaxopt"
    ):
        step_in_backward(optimizer)


@pytest.mark.parametrize("given", [[torch.ones(1)], iter(())], ids=["list", "iterator"])
def test_param_groups_of_parameters_says_what_to_give(given):
    with pytest.raises(TypeError, match=r"a list(_iterator)? was given|a tuple_iterator was given"):
        param_groups(given, 0.1)


def test_groups_that_would_be_empty_are_left_out():
    assert [g["weight_decay"] for g in param_groups(nn.LayerNorm(3), 0.1)] == [0.0]
    assert [g["weight_decay"] for g in param_groups(nn.Linear(2, 2, bias=False), 0.1)] == [0.1]


def test_the_groups_do_what_they_say():
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = AdaXW(param_groups(model, 0.5), lr=0.1)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    after = model.state_dict()
    torch.testing.assert_close(after["0.weight"], 0.95 * before["0.weight"])
    assert all(torch.equal(after[k], before[k]) for k in ("0.bias", "1.weight", "1.bias"))


# -- steps inside the backward pass --------------------------------------------------------------------------------


def deep(seed=0):
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(4, 4), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(4, 1))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["adaxw", "adax", "padax", "adam", "sgdm", "adashift", "amsgradw"])
def test_the_same_result_as_a_plain_step(name, backend):
    if backend == "fused" and name not in FUSES:
        backend = "default"
    inside, plain = deep(), deep()
    first = create(name, inside.parameters(), **BACKENDS[backend])
    second = create(name, plain.parameters(), **BACKENDS[backend])
    hooks = step_in_backward(first)
    for i in range(4):
        x = torch.full((3, 4), float(i + 1))
        inside(x).square().sum().backward()
        second.zero_grad()
        plain(x).square().sum().backward()
        second.step()
    for p in plain.parameters():
        p.grad = None
    assert all(p.grad is None for p in inside.parameters())
    assert same(snapshot(first), snapshot(second))
    hooks.remove()
    before = snapshot(first)
    inside(torch.ones(3, 4)).sum().backward()
    assert same(snapshot(first), before)
    assert all(p.grad is not None for p in inside.parameters())


def test_at_most_a_few_gradients_are_alive_at_once():
    model = deep()
    optimizer = AdaXW(model.parameters())
    alive = []

    def count(p):
        alive.append(sum(q.grad is not None for q in model.parameters()))

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(count)  # runs before the step frees it
    hooks = step_in_backward(optimizer)
    model(torch.ones(2, 4)).sum().backward()
    assert len(alive) == 14
    assert max(alive) <= 2
    hooks.remove()
    alive.clear()
    model(torch.ones(2, 4)).sum().backward()
    assert max(alive) == 14  # without it


def test_sparse_gradients_inside_the_backward_pass():
    with torch.sparse.check_sparse_tensor_invariants():
        torch.manual_seed(0)
        one, two = nn.Embedding(5, 2, sparse=True), nn.Embedding(5, 2, sparse=True)
        two.load_state_dict(one.state_dict())
        first, second = AdaXW(one.parameters()), AdaXW(two.parameters())
        step_in_backward(first)
        for _ in range(3):
            words = torch.tensor([1, 3, 3])
            one(words).sum().backward()
            second.zero_grad()
            two(words).sum().backward()
            second.step()
        assert torch.equal(one.weight, two.weight)
        assert first.state[one.weight]["row_step"].tolist() == [0, 3, 0, 3, 0]


def test_frozen_parameters_and_schedulers():
    model = deep()
    model[0].requires_grad_(False)
    optimizer = AdaXW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=2)
    step_in_backward(optimizer)
    before = model[0].weight.clone()
    seen = []
    for _ in range(3):
        last = model[-1].weight.detach().clone()
        model(torch.ones(2, 4)).sum().backward()
        seen.append(float((model[-1].weight.detach() - last).abs().max()))
        optimizer.step()  # nothing is left to step: for the scheduler's sake
        scheduler.step()
    assert torch.equal(model[0].weight, before)
    assert seen[0] > seen[1] > seen[2] == 0.0


def test_a_step_inside_the_backward_pass_asks_first_whether_it_may_be_captured(monkeypatch):
    """As `step` does: a graph would go on reading host memory that later steps write again."""

    def refuse(optimizer):
        raise RuntimeError("CUDA graph capture")

    monkeypatch.setattr(AdaXW, "_check_capture", refuse)
    model = nn.Linear(2, 2)
    optimizer = AdaXW(model.parameters())
    hooks = step_in_backward(optimizer)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(RuntimeError, match="CUDA graph capture"):
        model(torch.ones(1, 2)).sum().backward()
    hooks.remove()
    assert same(before, [p.detach() for p in model.parameters()])
    assert not optimizer.state
