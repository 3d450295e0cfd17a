"""`memory=` and `total_steps=` on every backend: the gain is replaced, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import adaxopt
from adaxopt import AdaX, AdaXW, Equal, Fading, Growing, LogTime, Padax, Polynomial, Power, create
from adaxopt.zoo import METHODS
from runner import (
    BACKENDS,
    FUSES,
    Problem,
    check_late_coordinate,
    drive,
    relative,
    same,
    saved_and_read,
    snapshot,
    split,
)

STEPS = 40
LR = 1e-2
MEMORIES = [
    Growing(3e-2),
    Fading(0.8),
    Equal(),
    Power(0.5),
    Power(-7),
    LogTime(8),
    Polynomial(0.8),
    LogTime(8).floor(1 / 4),
    Fading(0.9).freeze(20),
    Equal().floor(1 / 10).freeze(30),
]
each_memory = pytest.mark.parametrize("memory", MEMORIES, ids=repr)
PROBLEM = Problem(18, STEPS, seed=3)


def gain(memory, t: int) -> float:
    """k_t as its definition says, in plain sums."""
    x = memory.number
    k = {
        "growing": lambda: x / ((1 + x) ** t - 1),
        "fading": lambda: (1 - x) / (1 - x**t),
        "equal": lambda: 1 / t,
        "power": lambda: 1 / sum((t / i) ** x for i in range(1, t + 1)),
        "log_time": lambda: x / (x + t - 1),
        "polynomial": lambda: t**-x,
    }[memory.kind]()
    return 0.0 if t > memory.last else max(k, memory.least)


def expected(memory, name: str, problem=PROBLEM, steps: int = STEPS) -> np.ndarray:
    """The method with that gain, in float64; eps is added plainly (0 in these tests where it is scaled)."""
    o = METHODS[name].defaults
    x, m, v = problem.start.copy(), 0.0, 0.0
    for t in range(1, steps + 1):
        g = problem(t, x)
        m = 0.9 * m + 0.1 * g
        v = v + gain(memory, t) * (g * g - v)
        mean = m / (1 - 0.9**t) if METHODS[name].rule.debias else m
        x = x - LR * mean / (v ** o["p"] + (o["eps"] if METHODS[name].rule.debias else 0.0))
    return x


def made(name, params, memory, **options):
    eps = {} if METHODS[name].rule.debias else {"eps": 0.0}
    return create(name, params, lr=LR, weight_decay=0.0, memory=memory, **eps, **options)


@each_memory
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["adaxw", "padax", "adamw", "nosadam", "adamnx"])
def test_the_gain_is_the_memorys_on_every_backend(name, backend, memory):
    if backend == "fused" and name not in FUSES:
        return
    params = split(PROBLEM.start)
    got = drive(made(name, params, memory, **BACKENDS[backend]), params, PROBLEM, STEPS)
    assert relative(got, expected(memory, name)) < 1e-11


@each_memory
def test_sparse_rows_and_a_differentiable_step(memory):
    problem = Problem(6, STEPS, seed=5)
    p = torch.nn.Parameter(torch.tensor(problem.start).reshape(3, 2))
    optimizer = made("adaxw", [p], memory)
    for t in range(1, STEPS + 1):
        g = torch.tensor(problem(t, p.detach().numpy().reshape(-1))).reshape(3, 2)
        p.grad = torch.sparse_coo_tensor(torch.arange(3)[None], g, (3, 2), check_invariants=True)
        optimizer.step()
    assert relative(p.detach().numpy().reshape(-1), expected(memory, "adaxw", problem)) < 1e-11

    q = torch.tensor(problem.start, requires_grad=True) * 1.0
    optimizer = made("adaxw", [q], memory, differentiable=True)
    for t in range(1, STEPS + 1):
        q.grad = torch.tensor(problem(t, q.detach().numpy()))
        optimizer.step()
    assert relative(q.detach().numpy(), expected(memory, "adaxw", problem)) < 1e-11


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # the compiler's own imports
@pytest.mark.parametrize("memory", [Power(0.5), Polynomial(0.8), LogTime(8).floor(0.9).freeze(3)], ids=repr)
def test_a_compiled_step(memory):
    torch._dynamo.reset()
    found = []
    for compiled in (False, True):
        params = split(PROBLEM.start)
        optimizer = made("adaxw", params, memory)
        step = torch.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        for t in range(1, 5):
            for i, p in enumerate(params):
                p.grad = torch.full_like(p, float(t + i))
            step()
        found.append(torch.cat([p.detach().reshape(-1) for p in params]).numpy())
    assert relative(found[1], found[0]) < 1e-12


@each_memory
def test_a_checkpoint_holds_it_as_strings_and_numbers(memory):
    """Read without unpickling classes, and continued to the same bits."""
    params = split(PROBLEM.start)
    optimizer = made("adaxw", params, memory)
    drive(optimizer, params, PROBLEM, 20)
    file = saved_and_read(optimizer)  # weights_only
    group = file["param_groups"][0]
    assert (group["memory"], group["betas"]) == (memory.text, (0.9, memory.number))
    copies = split(torch.cat([p.detach().reshape(-1) for p in params]))
    other = AdaXW(copies)
    other.load_state_dict(file)
    drive(optimizer, params, PROBLEM, 20, first=21)
    drive(other, copies, PROBLEM, 20, first=21)
    assert same(snapshot(other)["params"], snapshot(optimizer)["params"])


@pytest.mark.parametrize("late", [4, 9])
@pytest.mark.parametrize("backend", [*BACKENDS, "differentiable", "sparse"])
def test_a_memory_that_freezes_guards_late_coordinates(backend, late):
    """Also without `wake`: the v of a coordinate whose first gradient comes after the freeze is its square."""
    p = torch.zeros(2, 1, dtype=torch.float64, requires_grad=True)
    x = p * 1.0 if backend == "differentiable" else torch.nn.Parameter(p.detach().clone())
    options = {"differentiable": {"differentiable": True}, "sparse": {}}
    memory = Fading(0.9).freeze(5)
    optimizer = create(
        "adamw", [x], lr=1.0, weight_decay=0.0, eps=1e-30, memory=memory, **(options | BACKENDS)[backend]
    )
    assert not optimizer.param_groups[0]["wake"]
    check_late_coordinate(x, optimizer, late, sparse=backend == "sparse")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_memory_that_does_not_freeze_guards_none(backend):
    """The v of a coordinate whose first gradient, 3, comes at step 20 is 9*k_20."""
    x = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = create("adamw", [x], memory=LogTime(8), **BACKENDS[backend])
    for t in range(1, 21):
        x.grad = torch.tensor([1.0, 3.0 * (t == 20)], dtype=torch.float64)
        optimizer.step()
    assert optimizer.state[x]["exp_avg_sq"].tolist() == pytest.approx([1.0, 9 * 8 / 27], rel=1e-12)


@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
def test_a_run_length_sets_b2(kind, recwarn):
    p = torch.nn.Parameter(torch.ones(2))
    for steps, b2 in ((30_000, 1e-4), (100, 0.03), (2, 0.75)):
        group = kind([p], total_steps=steps).param_groups[0]
        assert (group["betas"], group["total_steps"]) == ((0.9, b2), steps)
        assert kind([p], memory=Growing.over(steps)).param_groups[0]["betas"] == (0.9, b2)
    assert kind([p], betas=(0.8, None)).param_groups[0]["betas"] == (0.8, 1e-4)
    assert kind([p], betas=(0.8, None), total_steps=100).param_groups[0]["betas"] == (0.8, 0.03)
    assert not recwarn.list  # a b2 of 0.03 is explained by the run length


def test_a_run_length_explains_no_b2_of_adams():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = AdaXW([p], total_steps=1000)
    optimizer.param_groups[0]["betas"] = (0.9, 0.04)
    p.grad = torch.ones(2)
    optimizer.step()  # b2*T = 40: as in the paper's runs
    optimizer.param_groups[0]["betas"] = (0.9, 0.999)
    with pytest.warns(UserWarning, match="looks like Adam's"):
        optimizer.step()


def test_the_options_of_a_group_take_the_place_of_the_defaults():
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(6)]
    optimizer = AdaXW(
        [
            {"params": params[0]},
            {"params": params[1], "betas": (0.5, None)},
            {"params": params[2], "betas": (0.5, 1e-3)},
            {"params": params[3], "memory": LogTime(8)},
            {"params": params[4], "total_steps": 30},
            {"params": params[5], "memory": None},
        ],
        total_steps=300,
    )
    found = [(g["betas"], g["memory"], g["total_steps"]) for g in optimizer.param_groups]
    assert found == [
        ((0.9, 0.01), None, 300),
        ((0.5, 0.01), None, 300),
        ((0.5, 1e-3), None, None),
        ((0.9, 8), "log_time", None),
        ((0.9, 0.1), None, 30),
        ((0.9, 0.01), None, 300),
    ]
    again = AdaXW([dict(group) for group in optimizer.param_groups])  # as wrappers of optimizers do
    assert [(g["betas"], g["memory"], g["total_steps"]) for g in again.param_groups] == found


P = torch.nn.Parameter(torch.ones(2))
REFUSED = [
    (lambda: AdaXW([P], total_steps=10, betas=(0.9, 1e-4)), "total_steps=10, .*0.0001: .*b2 = 3/T; give one"),
    (
        lambda: AdaXW([P], total_steps=10, memory=Equal()),
        "memory=Equal.*, total_steps=10: give one of the two",
    ),
    (
        lambda: AdaXW([P], memory=Equal(), betas=(0.9, 1e-4)),
        r"betas\[1\]=0.0001: a memory has its own number",
    ),
    (lambda: create("nosadam", [P], c=0.1, memory=Equal()), r"betas\[1\]=0.1: a memory has its own number"),
    (
        lambda: AdaXW([P], memory="growing"),
        "memory='growing': must be one of adaxopt.Growing.*with its number",
    ),
    (lambda: AdaXW([P], total_steps=-1), "total_steps=-1: must be > 0"),
    (lambda: AdaXW([P], betas=(None, None)), r"betas\[0\]=None: must be a number"),
    (lambda: AdaXW([P], memory=0.5), "memory=0.5: must be one of adaxopt.Growing"),
    (lambda: create("sgdm", [P], memory=Equal()), "Sgdm: unknown argument 'memory'"),
    (lambda: create("amsgrad", [P], memory=Equal()), "Amsgrad: unknown argument 'memory'"),
    (lambda: create("adamw", [P], total_steps=10), "unknown argument 'total_steps'"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_refused(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_the_names_are_public():
    assert {adaxopt.Growing, adaxopt.Equal, adaxopt.LogTime} < set(map(type, MEMORIES)) | {Growing}


def test_stats_report_b2_times_the_steps():
    params = split(PROBLEM.start)
    optimizer = AdaXW(params, total_steps=STEPS)
    drive(optimizer, params, PROBLEM, STEPS // 2)
    assert optimizer.stats()[0]["b2_steps"] == pytest.approx(1.5)
    assert "b2_steps" not in made("adaxw", params, LogTime(8)).stats()[0]
    other = made("adaxw", params, LogTime(8))
    drive(other, params, PROBLEM, 2)
    assert "b2_steps" not in other.stats()[0]
    assert other.stats()[0]["gain"] == 8 / 9


def test_another_run_length_than_the_checkpoint_s_warns():
    """A run of `STEPS` that is extended to twice as many, as docs/hyperparameters.md says."""
    params = split(PROBLEM.start)
    first = AdaXW(params, total_steps=STEPS)
    drive(first, params, PROBLEM, STEPS)
    longer = AdaXW(params, total_steps=2 * STEPS)
    with pytest.warns(UserWarning, match=f"total_steps={2 * STEPS}: not used.*total_steps={STEPS}") as caught:
        longer.load_state_dict(first.state_dict())
    assert caught[0].filename == __file__
    (group,) = longer.param_groups
    assert group["betas"] == (0.9, 3 / STEPS)
    advised(caught, longer)
    assert longer.stats()[0]["b2_steps"] == pytest.approx(1.5)
    assert longer.stats()[0]["gain"] == pytest.approx(Growing.over(2 * STEPS).k(STEPS))
    AdaXW(params, total_steps=2 * STEPS).load_state_dict(longer.state_dict())  # b2 is as asked: no warning
    longer.restart_memory()
    assert group["betas"] == (0.9, 3 / (2 * STEPS))


def advised(caught, optimizer):
    """Run the code of the warnings."""
    for one in caught:
        exec(str(one.message).rpartition("loading: ")[2], {"optimizer": optimizer})


RUNS = [*({"total_steps": total} for total in (1, 2, 3.5, 200)), {"memory": Growing.over(200)}]


@pytest.mark.parametrize("asked", RUNS, ids=str)
@pytest.mark.parametrize("saved", [{}, {"total_steps": 100}, {"memory": LogTime(8)}], ids=str)
def test_the_advice_gives_the_options_of_the_constructor(saved, asked):
    """One warning for the groups of which it speaks; a group with a memory keeps its number."""
    params = [torch.nn.Parameter(torch.ones(2)) for _ in range(3)]

    def groups(**options):
        memory = {"memory": LogTime(4)}
        return AdaXW([{"params": [p], **(memory if p is params[1] else options)} for p in params])

    optimizer, expected = groups(**asked), groups(**asked)
    with pytest.warns(UserWarning, match=r"not used in groups 0, 2, .*run after loading") as caught:
        optimizer.load_state_dict(groups(**saved).state_dict())
    assert len(caught) == 1
    advised(caught, optimizer)
    for mine, wanted in zip(optimizer.param_groups, expected.param_groups, strict=True):
        assert all(mine[key] == wanted[key] for key in ("betas", "memory", "total_steps"))
    for p in params:
        p.grad = torch.ones(2)
    optimizer.step()  # warns of nothing


def test_groups_of_other_run_lengths_have_their_own_advice():
    def groups(*totals):
        return AdaXW([{"params": [torch.nn.Parameter(torch.ones(2))], "total_steps": t} for t in totals])

    optimizer = groups(200, 300, 200)
    with pytest.warns(UserWarning, match="run after loading") as caught:
        optimizer.load_state_dict(groups(100, 100, 100).state_dict())
    assert len(caught) == 2
    advised(caught, optimizer)
    assert [group["total_steps"] for group in optimizer.param_groups] == [200, 300, 200]


def test_the_growing_memory_of_adamw_is_another_than_its_own():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = adaxopt.AdamW([p], memory=Growing(0.999))
    with pytest.warns(
        UserWarning, match=r"memory=Growing\(0\.999\): not used in group 0, because memory=None"
    ):
        optimizer.load_state_dict(adaxopt.AdamW([p]).state_dict())


AS_ASKED = [{"total_steps": 100}, {"memory": Growing.over(100)}, {"betas": (0.9, torch.tensor(1e-3))}]


@pytest.mark.parametrize("saved", AS_ASKED, ids=str)
@pytest.mark.parametrize("asked", AS_ASKED[:2], ids=str)
def test_a_b2_as_asked_or_as_a_tensor_warns_of_nothing(asked, saved):
    """Whatever b2 the group has had since it was built."""
    p = torch.nn.Parameter(torch.ones(2))
    file = AdaXW([p], **saved).state_dict()
    AdaXW([p], **asked).load_state_dict(file)
    if "total_steps" in asked:
        optimizer = AdaXW([p], **asked)
        optimizer.param_groups[0]["betas"] = (0.9, 1e-3)
        optimizer.load_state_dict(file)


@pytest.mark.parametrize("given", ["1000", lambda t: 1000])
def test_a_run_length_that_is_no_number_is_named(given):
    with pytest.raises(TypeError, match=r"total_steps=.*: must be a number, the steps of the whole run"):
        AdaXW([torch.nn.Parameter(torch.ones(2))], total_steps=given)
