"""Sparse gradients: each row in its own time, the rows that a gradient names and no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import oracles
from adaxopt import AdaXW, Box, clip_grad_norm_, create
from runner import relative, same, snapshot


@pytest.fixture(autouse=True)
def _checked():
    """torch warns once a process unless it is told whether to check what a sparse tensor claims."""
    with torch.sparse.check_sparse_tensor_invariants():
        yield


ROWWISE = ("adax", "adaxw", "padax", "adam", "adamw", "amsgrad", "padam", "nosadam", "rmsprop", "adagrad")
ROWS, WIDTH = 7, 3
LR = 0.02


def coo(indices, values, shape, dtype=torch.float64):
    values = torch.as_tensor(np.asarray(values), dtype=dtype)
    return torch.sparse_coo_tensor(torch.as_tensor(np.asarray(indices)), values, shape)


def touches(random, steps, rows=ROWS, always=0):
    """Which rows each step names: row `always` every time, others now and then."""
    found = []
    for _ in range(steps):
        named = np.flatnonzero(random.random(rows) < 0.3)
        found.append(np.union1d(named, [always]))
    return found


@pytest.mark.parametrize("decay", ["l2", "decoupled", "fully_decoupled"])
@pytest.mark.parametrize("name", ROWWISE)
def test_each_row_is_a_run_of_its_own(name, decay):
    """Every row against the method's own formula over the gradients that named it; a row never named stays put."""
    random = np.random.default_rng(1)
    start = random.normal(size=(ROWS + 1, WIDTH))
    p = torch.nn.Parameter(torch.tensor(start))
    optimizer = create(name, [p], lr=LR, weight_decay=0.05, decay=decay)
    seen: list[list[np.ndarray]] = [[] for _ in range(ROWS + 1)]
    for named in touches(random, 40):
        values = random.normal(size=(len(named), WIDTH))
        p.grad = coo([named], values, p.shape)
        optimizer.step()
        for row, value in zip(named, values, strict=True):
            seen[row].append(value)
    for row in range(ROWS):
        assert 5 < len(seen[row]) <= 40
        expected = oracles.run(
            oracles.METHODS[name](),
            lambda t, x, row=row: seen[row][t - 1],
            start[row],
            len(seen[row]),
            lr=LR,
            weight_decay=0.05,
            decay=decay,
        )
        assert relative(p[row].detach().numpy(), expected) < 1e-11
    assert np.array_equal(p[ROWS].detach().numpy(), start[ROWS])
    assert optimizer.state[p]["row_step"].tolist() == [len(s) for s in seen]
    assert float(optimizer.state[p]["step"]) == 40
    assert not optimizer.state[p]["exp_avg_sq"][ROWS].any()


@pytest.mark.parametrize("backend", [{}, {"foreach": True}, {"foreach": False}])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-15), (torch.float32, 3e-7)])
@pytest.mark.parametrize("name", ["adax", "adaxw", "padax", "adam"])
def test_a_row_named_every_time_is_a_dense_parameter(name, dtype, bound, backend):
    """Equal to the dense result, to the last places of its arithmetic."""
    random = np.random.default_rng(2)
    start = torch.tensor(random.normal(size=(ROWS, WIDTH)), dtype=dtype)
    sparse, dense = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    rows = create(name, [sparse], lr=LR, **backend)
    whole = create(name, [dense], lr=LR, **backend)
    for named in touches(random, 30):
        values = torch.tensor(random.normal(size=(len(named), WIDTH)), dtype=dtype)
        sparse.grad = coo([named], values, start.shape, dtype)
        dense.grad = sparse.grad.to_dense()
        rows.step()
        whole.step()
    assert relative(sparse[0].detach().numpy(), dense[0].detach().numpy()) < 3 * bound
    assert not torch.allclose(sparse[1], dense[1], rtol=1e-3)  # a row that rested lives in another time


def test_duplicates_are_summed():
    a, b = (torch.nn.Parameter(torch.ones(4, 2, dtype=torch.float64)) for _ in range(2))
    one, two = AdaXW([a]), AdaXW([b])
    a.grad = coo([[1, 3, 1]], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], (4, 2))
    b.grad = coo([[1, 3]], [[6.0, 8.0], [3.0, 4.0]], (4, 2))
    assert not a.grad.is_coalesced()
    one.step()
    two.step()
    assert torch.equal(a, b)
    assert one.state[a]["row_step"].tolist() == [0, 1, 0, 1]
    assert a.grad._nnz() == 3  # gradients are read, never written
    assert a.grad._values().tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_an_embedding():
    """nn.Embedding(sparse=True) in a model with dense layers, one group for both."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(10, 4, sparse=True), torch.nn.Flatten(), torch.nn.Linear(8, 1)
    )
    twin = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Flatten(), torch.nn.Linear(8, 1))
    twin.load_state_dict(model.state_dict())
    ours = AdaXW(model.parameters(), lr=0.05)
    dense = AdaXW(twin.parameters(), lr=0.05)
    words, wanted = torch.tensor([[1, 2], [2, 3], [1, 1]]), torch.tensor([[1.0], [-1.0], [0.5]])
    losses = []
    for _ in range(60):
        for each, optimizer in ((model, ours), (twin, dense)):
            optimizer.zero_grad()
            loss = ((each(words) - wanted) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert model[0].weight.grad.is_sparse
    assert losses[-2] < 0.05 * losses[0]
    # words 1, 2, 3 are met at every step; decay never reaches the others
    torch.testing.assert_close(model[0].weight[1:4], twin[0].weight[1:4], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model[2].weight, twin[2].weight, rtol=1e-4, atol=1e-5)
    assert ours.state[model[0].weight]["row_step"].tolist() == [0, 60, 60, 60, 0, 0, 0, 0, 0, 0]
    assert "row_step" not in ours.state[model[2].weight]


def test_decay_reaches_only_the_rows_that_are_named():
    p = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = AdaXW([p], lr=0.1, weight_decay=0.5)
    p.grad = coo([[1]], [[0.0, 0.0]], (3, 2), torch.float32)
    optimizer.step()
    assert p.tolist() == [[1, 1], [pytest.approx(0.95)] * 2, [1, 1]]


@pytest.mark.parametrize("name", ["adax", "adaxw", "padax", "adam"])
def test_two_sparse_dimensions(name):
    """row_step has the shape p.shape[:sparse_dim]."""
    random = np.random.default_rng(3)
    start = random.normal(size=(3, 4, 2))
    p = torch.nn.Parameter(torch.tensor(start))
    optimizer = create(name, [p], lr=LR, weight_decay=0.0)
    seen: dict[tuple[int, int], list[np.ndarray]] = {}
    for _ in range(12):
        flat = np.flatnonzero(random.random(12) < 0.5)
        index = np.stack(np.unravel_index(flat, (3, 4)))
        values = random.normal(size=(len(flat), 2))
        p.grad = coo(index, values, p.shape)
        optimizer.step()
        for i, j, value in zip(*index, values, strict=True):
            seen.setdefault((int(i), int(j)), []).append(value)
    assert optimizer.state[p]["row_step"].shape == (3, 4)
    assert optimizer.state[p]["row_step"].dtype == torch.float64
    for (i, j), gs in seen.items():
        expected = oracles.run(
            oracles.METHODS[name](), lambda t, x, gs=gs: gs[t - 1], start[i, j], len(gs), lr=LR
        )
        assert relative(p[i, j].detach().numpy(), expected) < 1e-11
        assert optimizer.state[p]["row_step"][i, j] == len(gs)


def test_all_dimensions_sparse():
    start = torch.arange(1.0, 5.0, dtype=torch.float64)
    p = torch.nn.Parameter(start.clone())
    optimizer = AdaXW([p], lr=0.1, weight_decay=0.0)
    for _ in range(3):
        p.grad = coo([[0, 2]], [1.0, -1.0], (4,))
        optimizer.step()
    assert optimizer.state[p]["row_step"].tolist() == [3, 0, 3, 0]
    assert p.tolist()[1::2] == [2.0, 4.0]
    assert p[0] < 1.0
    assert p[2] > 3.0


def test_a_change_of_sparse_dimension_is_refused_before_anything_is_done():
    p = torch.nn.Parameter(torch.ones(3, 4, 2))
    optimizer = AdaXW([p])
    p.grad = torch.ones(3, 4, 2).to_sparse(1)
    optimizer.step()
    before = snapshot(optimizer)
    p.grad = torch.ones(3, 4, 2).to_sparse(2)
    with pytest.raises(ValueError, match=r"sparse_dim=2.*sparse_dim=1"):
        optimizer.step()
    assert same(snapshot(optimizer), before)


@pytest.mark.parametrize("name", ["adax", "adaxw", "padax", "adam", "amsgrad"])
@pytest.mark.parametrize("order", ["dense first", "sparse first"])
def test_dense_and_sparse_gradients_in_turn(name, order):
    """A dense gradient advances every row; rows keep the counts they had."""
    random = np.random.default_rng(4)
    start = random.normal(size=(4, 2))
    p = torch.nn.Parameter(torch.tensor(start))
    optimizer = create(name, [p], lr=LR, weight_decay=0.0)
    seen: list[list[np.ndarray]] = [[] for _ in range(4)]
    for t in range(20):
        dense = (t // 4) % 2 == (order == "sparse first")
        g = random.normal(size=(4, 2))
        named = np.arange(4) if dense else np.array([0, 2])
        p.grad = torch.tensor(g) if dense else coo([named], g[named], (4, 2))
        optimizer.step()
        for row in named:
            seen[row].append(g[row])
    for row in range(4):
        gs = seen[row]
        expected = oracles.run(
            oracles.METHODS[name](), lambda t, x, gs=gs: gs[t - 1], start[row], len(gs), lr=LR
        )
        assert relative(p[row].detach().numpy(), expected) < 1e-11
    assert optimizer.state[p]["row_step"].tolist() == [len(s) for s in seen]


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("name", ["adaxw", "adam"])
def test_a_gradient_that_names_no_row(name, first):
    """Nothing moves, no row grows older: also when it is the first gradient of all."""
    p, q = (torch.nn.Parameter(torch.ones(3, 2, dtype=torch.float64)) for _ in range(2))
    ours, plain = create(name, [p], lr=LR), create(name, [q], lr=LR)
    named = [coo([[1]], [[1.0, -2.0]], (3, 2)), coo([[1, 2]], [[3.0, 1.0], [2.0, 2.0]], (3, 2))]
    empty = coo(np.zeros((1, 0), int), np.zeros((0, 2)), (3, 2))
    for g in [empty, *named] if first else [named[0], empty, named[1]]:
        p.grad = g
        before = p.detach().clone()
        ours.step()
        assert g is not empty or torch.equal(p, before)
    for g in named:
        q.grad = g
        plain.step()
    assert torch.equal(p, q)
    assert ours.state[p]["row_step"].tolist() == plain.state[q]["row_step"].tolist() == [0, 2, 1]
    assert torch.equal(ours.state[p]["exp_avg_sq"], plain.state[q]["exp_avg_sq"])


@pytest.mark.parametrize("rounding", ["nearest", "stochastic", "kahan"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_parameters(dtype, rounding):
    """State is float32 and as good as a float32 parameter's; the parameter is as good as its format."""
    random = np.random.default_rng(6)
    start = torch.tensor(random.normal(size=(ROWS, 64)), dtype=dtype)
    low, full = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.float())
    ours = AdaXW([low], lr=1e-3, weight_decay=0.0, rounding=rounding)
    theirs = AdaXW([full], lr=1e-3, weight_decay=0.0)
    for named in touches(random, 100):
        values = torch.tensor(random.normal(size=(len(named), 64)) + 0.5, dtype=dtype)
        low.grad = coo([named], values.float(), start.shape, dtype)
        full.grad = coo([named], values.float(), start.shape, torch.float32)
        ours.step()
        theirs.step()
    for key in ("exp_avg", "exp_avg_sq"):
        assert ours.state[low][key].dtype == torch.float32
        torch.testing.assert_close(ours.state[low][key], theirs.state[full][key], rtol=1e-5, atol=1e-7)
    moved = (full - start.float()).detach()
    error = (low.float() - full).detach()
    unit = torch.finfo(dtype).eps
    assert float(moved[0].abs().mean()) > 3e-2
    if rounding == "kahan":
        assert float(error.abs().max()) <= 2.5 * unit
    if rounding == "stochastic":  # unbiased: the mean error of 64 coordinates is far below a single one
        assert abs(float(error[0].mean())) < 0.1 * float(moved[0].abs().mean())
    if rounding == "nearest" and dtype is torch.bfloat16:
        assert float((low.detach().float() - start.float()).abs().mean()) < 0.7 * float(moved.abs().mean())


def test_bfloat16_state():
    p = torch.nn.Parameter(torch.ones(4, 8))
    optimizer = AdaXW([p], state_dtype=torch.bfloat16)
    for _ in range(5):
        p.grad = coo([[0, 2]], torch.randn(2, 8), (4, 8), torch.float32)
        optimizer.step()
    assert optimizer.state[p]["exp_avg_sq"].dtype == torch.bfloat16
    assert bool((optimizer.state[p]["exp_avg_sq"][[0, 2]] > 0).all())
    assert not optimizer.state[p]["exp_avg_sq"][[1, 3]].any()


def test_complex_rows():
    """As pairs of reals, like a dense complex parameter."""
    random = np.random.default_rng(8)
    start = torch.tensor(random.normal(size=(4, 2)) + 1j * random.normal(size=(4, 2)))
    sparse, dense = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    rows, whole = AdaXW([sparse], lr=LR), AdaXW([dense], lr=LR)
    for _ in range(6):
        g = torch.tensor(random.normal(size=(4, 2)) + 1j * random.normal(size=(4, 2)))
        sparse.grad, dense.grad = g.to_sparse(1), g
        rows.step()
        whole.step()
    torch.testing.assert_close(sparse, dense, rtol=1e-13, atol=0)


def test_maximize():
    p, q = (torch.nn.Parameter(torch.zeros(3, 2, dtype=torch.float64)) for _ in range(2))
    up, down = AdaXW([p], maximize=True), AdaXW([q])
    for optimizer, x in ((up, p), (down, q)):
        x.grad = coo([[2]], [[1.0, -3.0]], (3, 2))
        optimizer.step()
    assert torch.equal(p, -q)
    assert p[2, 0] > 0


def test_a_row_that_wakes_late_begins_at_one():
    """Row 1 meets its first gradient at step 100,001 and moves by lr*(1-b1), whatever `wake` says."""
    for wake in (True, False):
        p = torch.nn.Parameter(torch.zeros(2, 1, dtype=torch.float64))
        optimizer = AdaXW([p], lr=1.0, weight_decay=0.0, wake=wake)
        p.grad = coo([[0]], [[1.0]], (2, 1))
        optimizer.step()
        saved = optimizer.state_dict()
        saved["state"][0]["row_step"][0] = 100_000.0
        saved["state"][0]["step"].fill_(100_000.0)
        optimizer.load_state_dict(saved)
        p.grad = coo([[1]], [[3.0]], (2, 1))
        optimizer.step()
        assert p[1].item() == pytest.approx(-0.1)
        assert float(optimizer.state[p]["step"]) == 100_001


REFUSED = [
    ("adashift", {}, r"Adashift.*sparse"),
    ("sgdm", {}, r"Sgdm.*sparse"),
    ("adaxw", {"capturable": True}, r"capturable=True.*sparse"),
    ("adaxw", {"fused": True}, r"fused=True.*sparse"),
    ("adaxw", {"differentiable": True}, r"differentiable=True.*sparse"),
    ("adaxw", {"project": Box(-1, 1)}, r"project.*sparse"),
]


@pytest.mark.parametrize(("name", "options", "message"), REFUSED)
def test_what_cannot_be_done_with_rows_is_refused_before_anything_is_done(name, options, message):
    dense, p = (torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2))
    optimizer = create(name, [dense, p], **options)
    dense.grad = torch.ones(3, 2)
    p.grad = coo([[1]], [[1.0, 2.0]], (3, 2), torch.float32)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=message):
        optimizer.step()
    assert same(snapshot(optimizer), before)


def test_the_rows_of_a_loaded_checkpoint_are_not_forgotten_by_a_captured_step():
    p = torch.nn.Parameter(torch.ones(3, 2))
    optimizer = AdaXW([p])
    p.grad = coo([[1]], [[1.0, 2.0]], (3, 2), torch.float32)
    optimizer.step()
    saved = optimizer.state_dict()
    saved["param_groups"][0]["capturable"] = True
    q = torch.nn.Parameter(torch.ones(3, 2))
    other = AdaXW([q], capturable=True)
    other.load_state_dict(saved)
    q.grad = torch.ones(3, 2)
    with pytest.raises(ValueError, match="capturable=True"):
        other.step()


# -- clipping ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6])
@pytest.mark.parametrize("coalesced", [True, False])
def test_clip_grad_norm(max_norm, norm_type, coalesced):
    """The dense computation, with sparse gradients left sparse."""
    random = np.random.default_rng(9)
    shapes = [(5, 2), (4,), (3, 2, 2)]
    ours = [torch.nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in shapes]
    dense = [torch.nn.Parameter(torch.zeros(s, dtype=torch.float64)) for s in shapes]
    ours[0].grad = coo([[3, 1, 3]], random.normal(size=(3, 2)), (5, 2))
    if coalesced:
        ours[0].grad = ours[0].grad.coalesce()
    ours[1].grad = torch.tensor(random.normal(size=4))
    ours[2].grad = coo([[0, 2], [1, 0]], random.normal(size=(2, 2)), (3, 2, 2))
    for p, q in zip(ours, dense, strict=True):
        q.grad = p.grad.to_dense().clone()
    extra = torch.nn.Parameter(torch.zeros(2))  # no gradient
    held = [p.grad for p in ours]
    got = clip_grad_norm_(iter([*ours, extra]), max_norm, norm_type)
    wanted = torch.nn.utils.clip_grad_norm_(dense, max_norm, norm_type)
    torch.testing.assert_close(got, wanted, rtol=1e-14, atol=0)
    assert float(wanted) > 0.5
    for p, q in zip(ours, dense, strict=True):
        torch.testing.assert_close(p.grad.to_dense(), q.grad, rtol=1e-14, atol=0)
    assert [p.grad.is_sparse for p in ours] == [True, False, True]
    assert all(p.grad is g for p, g in zip(ours, held, strict=True))
    assert all(g.is_coalesced() for g in held if g.is_sparse), "summed once, for the step as well"


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_clip_grad_norm_of_a_sparse_gradient_without_entries_is_that_of_zeros(norm_type):
    p, q = (torch.nn.Parameter(torch.zeros(3, 2)) for _ in range(2))
    p.grad, q.grad = (
        coo(np.zeros((1, 0), dtype=int), np.zeros((0, 2)), (3, 2), torch.float32),
        torch.ones(3, 2),
    )
    assert clip_grad_norm_([p], 1.0, norm_type) == 0.0
    got, wanted = clip_grad_norm_([p, q], 0.5, norm_type), torch.linalg.vector_norm(torch.ones(6), norm_type)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(q.grad, torch.full((3, 2), 0.5) / wanted, rtol=2e-6, atol=0)
    assert p.grad.is_sparse
    assert p.grad._nnz() == 0


def test_clip_grad_norm_without_sparse_gradients_is_torchs():
    p, q = (torch.nn.Parameter(torch.ones(4)) for _ in range(2))
    p.grad, q.grad = torch.full((4,), 3.0), torch.full((4,), 3.0)
    assert torch.equal(clip_grad_norm_(p, 1.0), torch.nn.utils.clip_grad_norm_(q, 1.0))
    assert torch.equal(p.grad, q.grad)


def test_clip_grad_norm_can_refuse_what_is_not_finite():
    p = torch.nn.Parameter(torch.ones(3, 1))
    p.grad = coo([[1]], [[float("nan")]], (3, 1), torch.float32)
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm_([p], 1.0, error_if_nonfinite=True)
