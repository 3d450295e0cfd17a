"""State: saved, loaded, copied, pickled and resumed to the same bits; hooks around it; names of parameters."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from infos import (
    assert_same,
    build,
    each_input,
    each_method,
    everything,
    parameters,
    run,
    set_gradients,
)


def go_on(params, optimizer, first, last):
    for t in range(first, last):
        set_gradients(params, t)
        optimizer.step()
    return everything(params, optimizer)


def through_file(state_dict):
    """Saved and read back with nothing but tensors and plain values allowed."""
    file = io.BytesIO()
    torch.save(state_dict, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def clones(params):
    return [p.detach().clone().requires_grad_() for p in params]


@each_input()
@pytest.mark.parametrize("way", [{}, {"foreach": True}], ids=["default", "foreach"])
def test_resume_is_bit_exact(name, kwargs, way):
    params, optimizer = run(name, steps=3, **kwargs, **way)
    saved = through_file(optimizer.state_dict())
    others = clones(params)
    resumed = build(name, others, **way)  # hyper-parameters come from the checkpoint
    resumed.load_state_dict(saved)
    assert_same(go_on(others, resumed, 3, 6), go_on(params, optimizer, 3, 6))
    assert_same(everything(others, resumed), everything(*run(name, steps=6, **kwargs, **way)))


@each_method
@pytest.mark.parametrize(
    "kwargs",
    [{"rounding": "stochastic", "seed": 5}, {"rounding": "kahan"}, {"state_dtype": torch.bfloat16}, {}],
    ids=["stochastic", "kahan", "bf16 state", "plain"],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_resume_in_16_bits_is_bit_exact_and_state_keeps_its_dtype(name, kwargs, dtype):
    params, optimizer = run(name, steps=3, dtype=dtype, **kwargs)
    others = clones(params)
    resumed = build(name, others)
    resumed.load_state_dict(through_file(optimizer.state_dict()))
    expected = kwargs.get("state_dtype", torch.float32)
    for p in others:
        for key in ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "window"):
            if key in resumed.state[p]:
                assert resumed.state[p][key].dtype == expected
    assert_same(go_on(others, resumed, 3, 6), go_on(params, optimizer, 3, 6))


@each_method
def test_a_checkpoint_holds_plain_tensors_and_values_only(name):
    _, optimizer = run(name, steps=2)
    saved = optimizer.state_dict()
    for entry in saved["state"].values():
        assert entry
        for value in entry.values():
            assert type(value) is torch.Tensor
            assert not value.requires_grad
        assert entry["step"].dtype == torch.float64
        assert entry["step"].shape == ()
    for group in saved["param_groups"]:
        assert group["params"] == list(range(5))
        assert (group["format"], group["method"]) == (2, name)


@each_method
def test_a_loaded_step_may_be_a_number_or_a_float32_tensor(name):
    params, optimizer = run(name, steps=3)
    expected = go_on(clones_of := clones(params), copy_into(name, optimizer, clones_of), 3, 5)
    for spell in (
        float,
        int,
        lambda t: torch.tensor(float(t)),
        lambda t: torch.tensor(float(t), dtype=torch.bfloat16),
    ):
        saved = copy.deepcopy(optimizer.state_dict())
        for entry in saved["state"].values():
            entry["step"] = spell(entry["step"])
        others = clones(params)
        resumed = build(name, others)
        resumed.load_state_dict(saved)
        assert all(resumed.state[p]["step"].dtype == torch.float64 for p in others)
        assert_same(go_on(others, resumed, 3, 5), expected)


def copy_into(name, optimizer, params):
    other = build(name, params)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return other


@each_method
def test_loading_does_not_change_what_is_loaded(name):
    params, optimizer = run(name, steps=2)
    saved = copy.deepcopy(optimizer.state_dict())
    before = copy.deepcopy(saved)
    build(name, clones(params)).load_state_dict(saved)
    assert saved["param_groups"] == before["param_groups"]
    for key, entry in before["state"].items():
        assert_same(list(saved["state"][key].values()), list(entry.values()))


@each_method
def test_groups_of_an_older_checkpoint_take_missing_options_from_the_optimizer(name):
    params, optimizer = run(name, steps=2)
    saved = copy.deepcopy(optimizer.state_dict())
    for group in saved["param_groups"]:
        for key in (
            "foreach",
            "fused",
            "capturable",
            "differentiable",
            "maximize",
            "rounding",
            "seed",
            "wake",
        ):
            del group[key]
    others = clones(params)
    resumed = build(name, others)
    resumed.load_state_dict(saved)
    assert_same(go_on(others, resumed, 2, 4), go_on(params, optimizer, 2, 4))


@each_input()
def test_deepcopy_goes_its_own_way(name, kwargs):
    params, optimizer = run(name, steps=2, **kwargs)
    both = copy.deepcopy({"params": params, "optimizer": optimizer})
    twins, twin = both["params"], both["optimizer"]
    assert twin.param_groups[0]["params"][0] is twins[0]
    before = [p.detach().clone() for p in params]
    go_on(twins, twin, 2, 4)
    assert_same([p.detach() for p in params], before)
    assert_same(go_on(params, optimizer, 2, 4), everything(twins, twin))
    assert type(twin) is type(optimizer)
    public = {a for a in vars(optimizer) if not a.startswith("_")}
    assert public <= set(vars(twin))


@each_input()
def test_pickle_goes_on_where_it_was(name, kwargs):
    params, optimizer = run(name, steps=2, **kwargs)
    twin = pickle.loads(pickle.dumps(optimizer))
    twins = twin.param_groups[0]["params"]
    assert_same(go_on(twins, twin, 2, 4), go_on(params, optimizer, 2, 4))


@each_method
def test_pickle_and_deepcopy_before_the_first_step(name):
    params = parameters()
    optimizer = build(name, params)
    for twin in (pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
        twins = twin.param_groups[0]["params"]
        assert_same(go_on(twins, twin, 0, 3), everything(*run(name, steps=3)))


@each_method
def test_a_projection_survives_a_copy(name):
    from adaxopt import Box

    params = parameters()
    optimizer = build(name, params, lr=1.0, project=Box(-0.25, 0.25))
    for twin in (optimizer, pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
        twins = twin.param_groups[0]["params"]
        go_on(twins, twin, 0, 2)
        assert max(p.detach().abs().max().item() for p in twins if p.numel()) <= 0.25


@each_method
def test_hooks_around_saving_and_loading(name):
    params, optimizer = run(name, steps=2)
    seen = []

    def double_lr(opt, state_dict):
        seen.append("pre load")
        for group in state_dict["param_groups"]:
            group["lr"] *= 2
        return state_dict

    def note(word):
        return lambda opt, *rest: seen.append(word)

    handles = [
        optimizer.register_state_dict_pre_hook(note("pre save")),
        optimizer.register_state_dict_post_hook(note("post save")),
    ]
    saved = copy.deepcopy(optimizer.state_dict())
    lr = saved["param_groups"][0]["lr"]
    other = build(name, clones(params))
    handles.append(other.register_load_state_dict_pre_hook(double_lr))
    handles.append(other.register_load_state_dict_post_hook(note("post load")))
    other.load_state_dict(saved)
    assert seen == ["pre save", "post save", "pre load", "post load"]
    assert other.param_groups[0]["lr"] == 2 * lr
    for handle in handles:
        handle.remove()
    other.load_state_dict(optimizer.state_dict())
    assert len(seen) == 4
    assert other.param_groups[0]["lr"] in (lr, 2 * lr)  # the first load's hook wrote into what it was given


@each_method
def test_named_parameters_are_kept_and_loadable_both_ways(name):
    tensors = parameters()
    named = build(name, [(f"layer{i}", p) for i, p in enumerate(tensors)])
    plain = build(name, clones(tensors))
    names = [f"layer{i}" for i in range(len(tensors))]
    assert named.state_dict()["param_groups"][0]["param_names"] == names
    go_on(tensors, named, 0, 2)
    plain.load_state_dict(through_file(named.state_dict()))
    assert plain.state_dict()["param_groups"][0]["param_names"] == names
    others = clones(tensors)
    again = build(name, [(n, p) for n, p in zip(names, others, strict=True)])
    bare = copy.deepcopy(named.state_dict())
    for group in bare["param_groups"]:
        del group["param_names"]
    again.load_state_dict(bare)
    assert again.param_groups[0]["param_names"] == names
    assert_same(go_on(others, again, 2, 4), go_on(tensors, named, 2, 4))


@each_method
def test_a_checkpoint_from_before_the_first_step_loads(name):
    params = parameters()
    fresh = build(name, clones(params))
    fresh.load_state_dict(through_file(build(name, params).state_dict()))
    twins = fresh.param_groups[0]["params"]
    assert_same(go_on(twins, fresh, 0, 3), everything(*run(name, steps=3)))
