"""Bad input: an error that names the argument, the value and what is allowed, before anything has happened."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import torch

import adaxopt
from adaxopt import AdaX, AdaXW, Padax, create
from adaxopt.zoo import METHODS
from runner import FUSES, same, snapshot

NAN, INF = float("nan"), float("inf")


def parameter(dtype=torch.float32):
    return torch.nn.Parameter(torch.ones(2, dtype=dtype))


VALUES = [
    ("lr", -1e-3, "lr=-0.001: must be >= 0"),
    ("lr", NAN, "lr=nan: must be >= 0"),
    ("lr", INF, "lr=inf: must be >= 0 and finite"),
    ("lr", torch.tensor(-1.0), "lr=-1.0: must be >= 0"),
    ("lr", torch.tensor([0.1, 0.2]), "lr=<tensor of shape (2,)>"),
    ("betas", (1.0, 1e-4), "betas[0]=1.0: must be in [0, 1)"),
    ("betas", (-0.1, 1e-4), "betas[0]=-0.1: must be in [0, 1)"),
    ("betas", (0.9, 1.0), "betas[1]=1.0: must be in [0, 1)"),
    ("betas", (0.9, -1e-4), "betas[1]=-0.0001: must be in [0, 1)"),
    ("betas", (NAN, 1e-4), "betas[0]=nan"),
    ("betas", (0.9, NAN), "betas[1]=nan"),
    ("betas", (0.9,), "betas=(0.9,): must be a pair"),
    ("betas", (0.9, 1e-4, 0.1), "must be a pair"),
    ("betas", 0.9, "betas=0.9: must be a pair"),
    ("betas", "09", "betas='09': must be a pair"),
    ("eps", -1e-8, "eps=-1e-08: must be >= 0"),
    ("eps", NAN, "eps=nan"),
    ("eps", INF, "eps=inf"),
    ("weight_decay", -0.1, "weight_decay=-0.1: must be >= 0"),
    ("weight_decay", NAN, "weight_decay=nan"),
    ("weight_decay", INF, "weight_decay=inf"),
    ("decay", "l1", "decay='l1': must be one of 'l2', 'decoupled', 'fully_decoupled'"),
    ("decay", None, "decay=None"),
    ("eps_placement", "after", "eps_placement='after': must be one of 'paper', 'plain'"),
    ("rounding", "up", "rounding='up': must be one of 'nearest', 'stochastic', 'kahan'"),
    ("state_dtype", torch.float16, "state_dtype=torch.float16: must be one of None"),
    ("state_dtype", torch.int32, "state_dtype=torch.int32: must be one of None"),
    ("state_dtype", "bfloat16", "state_dtype='bfloat16': must be one of None"),
    ("clip_update", 0.0, "clip_update=0.0: must be > 0"),
    ("clip_update", -1.0, "clip_update=-1.0: must be >= 0"),
    ("clip_update", NAN, "clip_update=nan"),
    ("foreach", "yes", "foreach='yes': must be one of None, True, False"),
    ("fused", 2, "fused=2: must be one of None, True, False"),
    ("capturable", None, "capturable=None: must be one of True, False"),
    ("differentiable", "no", "differentiable='no'"),
    ("maximize", 3, "maximize=3"),
    ("wake", "always", "wake='always'"),
]
TYPES = [
    ("lr", "0.1", "lr='0.1': must be a number >= 0"),
    ("lr", None, "lr=None: must be a number"),
    ("lr", True, "lr=True: must be a number"),
    ("betas", ("0.9", 1e-4), "betas[0]='0.9': must be a number"),
    ("betas", (None, 1e-4), "betas[0]=None: must be a number"),
    ("eps", "1e-8", "eps='1e-8': must be a number"),
    ("weight_decay", [0.1], "weight_decay=[0.1]: must be a number"),
    ("clip_update", "1", "clip_update='1': must be a number"),
    ("seed", 0.5, "seed=0.5: must be an int"),
    ("seed", None, "seed=None: must be an int"),
]
ALL = [(ValueError, *row) for row in VALUES] + [(TypeError, *row) for row in TYPES]
IDS = [f"{name}={value!r:.30}" for _, name, value, _ in ALL]


@pytest.mark.parametrize(("error", "name", "value", "message"), ALL, ids=IDS)
@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
def test_a_value_that_is_not_allowed(kind, error, name, value, message):
    with pytest.raises(error, match=re.escape(message)):
        kind([parameter()], **{name: value})


@pytest.mark.parametrize(("error", "name", "value", "message"), ALL, ids=IDS)
def test_the_same_in_a_group_and_in_add_param_group(error, name, value, message):
    """And nothing is half-applied."""
    with pytest.raises(error, match=re.escape(message)):
        AdaXW([{"params": [parameter()]}, {"params": [parameter()], name: value}])
    optimizer = AdaXW([parameter()])
    before = snapshot(optimizer)
    with pytest.raises(error, match=re.escape(message)):
        optimizer.add_param_group({"params": [parameter()], name: value})
    assert same(snapshot(optimizer), before)
    assert len(optimizer.param_groups) == 1


OF_THEIR_OWN = [
    ("padax", {"p": 0.6}, "p=0.6: must be a plain number in [0, 0.5]"),
    ("padax", {"p": -0.1}, "p=-0.1: must be a plain number in [0, 0.5]"),
    ("padam", {"p": NAN}, "p=nan"),
    ("padam", {"correct": "yes"}, "correct='yes': must be one of True, False"),
    ("adashift", {"window": 0}, "window=0: must be an int >= 1"),
    ("adashift", {"window": 2.0}, "window=2.0: must be an int >= 1"),
    ("adashift", {"eps": 0.0}, "eps=0: must be > 0"),
    ("nosadam", {"c": INF}, "betas[1]=inf: must be finite"),
    ("nosadam", {"c": NAN}, "betas[1]=nan: must be finite"),
    ("sgdm", {"momentum": 1.0}, "betas[0]=1.0: must be in [0, 1)"),
    ("rmsprop", {"alpha": 1.5}, "betas[1]=1.5: must be in [0, 1)"),
    ("rmsprop", {"betas": (0.9, 0.99)}, "betas[0]=0.9: must be 0"),
    ("adagrad", {"betas": (0.9, 0.0)}, "betas[0]=0.9: must be 0"),
]


@pytest.mark.parametrize(("name", "options", "message"), OF_THEIR_OWN)
def test_what_single_methods_do_not_allow(name, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        create(name, [parameter()], **options)


TOGETHER = [
    ({"foreach": True, "fused": True}, "foreach=True, fused=True"),
    ({"differentiable": True, "foreach": True}, "differentiable=True, foreach=True"),
    ({"differentiable": True, "fused": True}, "differentiable=True, fused=True"),
    ({"differentiable": True, "rounding": "stochastic"}, "differentiable=True, rounding='stochastic'"),
    ({"differentiable": True, "state_dtype": torch.bfloat16}, "differentiable=True, state_dtype"),
    ({"decay": "fully_decoupled", "lr": 0.0}, "lr=0.0: fully decoupled decay"),
]


@pytest.mark.parametrize(("options", "message"), TOGETHER)
def test_what_does_not_go_together(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        AdaXW([parameter()], **options)


IMPOSSIBLE_FUSED = [
    *((name, {}) for name in METHODS if name not in FUSES),
    ("adaxw", {"clip_update": 1.0}),
    ("adaxw", {"project": adaxopt.Box(-1, 1)}),
]


@pytest.mark.parametrize(("name", "options"), IMPOSSIBLE_FUSED)
def test_a_fused_step_that_does_not_exist_is_refused_before_anything_is_done(name, options):
    p = parameter()
    optimizer = create(name, [p], fused=True, **options)
    p.grad = torch.ones(2)
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=r"fused=True: .*leave fused=None"):
        optimizer.step()
    assert same(snapshot(optimizer), before)


def unlike(x):
    """A parameter whose gradient has another memory layout."""
    x.grad = torch.ones(x.shape).t().contiguous().t()
    return x


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (lambda: torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)), "rounding for torch.bfloat16$"),
        (
            lambda: torch.nn.Parameter(torch.ones(2)),
            r"dtypes differ \(parameter torch.float32, state torch.bfloat16, second moment torch.bfloat16\)$",
        ),
        (lambda: unlike(torch.nn.Parameter(torch.ones(2, 3))), "memory layouts differ .*gradient \\(1, 2\\)"),
    ],
)
def test_a_parameter_that_the_fused_step_cannot_serve_is_said_once(p, reason):
    """It is stepped all the same, by another path."""
    p = p()
    small = {"state_dtype": torch.bfloat16} if "state torch.bfloat16" in reason else {}
    optimizer = AdaXW([p], lr=0.5, fused=True, **small)
    p.grad = torch.ones_like(p) if p.grad is None else p.grad
    with pytest.warns(UserWarning, match=f"fused=True: .*{reason}"):
        optimizer.step()
    optimizer.step()  # silent now: a warning would be an error
    assert float(optimizer.state[p]["step"]) == 2
    assert bool((p < 1).all())


def test_no_parameters():
    for kind in (AdaX, AdaXW, Padax):
        with pytest.raises(ValueError, match="empty parameter list"):
            kind([])
    with pytest.raises(TypeError, match="params argument"):
        AdaXW(parameter())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool])
def test_parameters_that_are_not_numbers_with_a_point(dtype):
    whole = torch.ones(2, dtype=dtype)
    for given in ([whole], [{"params": [whole]}], [{"params": whole}], [("name", whole)]):
        with pytest.raises(TypeError, match=f"parameter of dtype {dtype}: must be floating point or complex"):
            AdaXW(given)
    optimizer = AdaXW([parameter()])
    before = snapshot(optimizer)
    with pytest.raises(TypeError, match=r"must be floating point"):
        optimizer.add_param_group({"params": [parameter(), whole]})
    assert same(snapshot(optimizer), before)


def test_parameters_that_are_sparse_themselves():
    with torch.sparse.check_sparse_tensor_invariants():
        p = torch.eye(2).to_sparse()
    with pytest.raises(TypeError, match=r"layout torch.sparse_coo: must be dense"):
        AdaXW([p])


def test_parameters_given_twice():
    p = parameter()
    with pytest.raises(ValueError, match="more than one parameter group"):
        AdaXW([{"params": [p]}, {"params": [p]}])
    with pytest.warns(UserWarning, match="duplicate parameters"):
        AdaXW([p, p])


def test_things_that_are_not_parameters():
    with pytest.raises(TypeError, match="can only optimize Tensors"):
        AdaXW([1.0])
    with pytest.raises(ValueError, match="non-leaf"):
        AdaXW([parameter() * 2])
    with pytest.raises(TypeError, match="must be a dict"):
        AdaXW([parameter()]).add_param_group([parameter()])


@pytest.mark.parametrize("name", METHODS)
def test_an_unknown_argument(name):
    with pytest.raises(TypeError, match=r"'?weight_decy'?"):
        create(name, [parameter()], weight_decy=0.1)


def test_an_unknown_argument_lists_the_known_ones():
    with pytest.raises(
        TypeError, match=r"Nosadam: unknown argument 'amsgrad': .*; allowed are .*betas.*weight_decay"
    ):
        create("nosadam", [parameter()], amsgrad=True)


@pytest.mark.parametrize("name", ["AdaX", "adamax", "", None])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=f"name={name!r}: unknown method; known are " + ", ".join(METHODS)):
        create(name, [parameter()])


@pytest.mark.parametrize("b2", [0.999, 0.99, 0.011])
@pytest.mark.parametrize("kind", [AdaX, AdaXW, Padax])
def test_a_b2_that_looks_like_adams(kind, b2):
    with pytest.warns(UserWarning, match=rf"betas\[1\]={b2} looks like Adam's.*growth rate.*1e-4") as seen:
        kind([parameter()], betas=(0.9, b2))
    assert len(seen) == 1
    assert seen[0].filename == __file__  # the caller's line
    with pytest.warns(UserWarning, match="looks like Adam's"):
        kind([{"params": [parameter()], "betas": (0.9, b2)}])


def test_how_soon_such_a_memory_freezes():
    with pytest.warns(UserWarning, match="frozen after 25 steps"):
        AdaXW([parameter()], betas=(0.9, 0.999))
    # 0.999/(1.999^t - 1) < 2^-24
    assert 0.999 / (1.999**25 - 1) < 2.0**-24 < 0.999 / (1.999**24 - 1)


def test_a_b2_of_the_paper_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for b2 in (0.0, 1e-5, 1e-4, 1e-3, 1e-2):
            AdaXW([parameter()], betas=(0.9, b2))
        create("adam", [parameter()], betas=(0.9, 0.999))
        create("nosadam", [parameter()], c=0.5)


def test_integers_and_tensors_are_numbers():
    p = parameter(torch.float64)
    optimizer = AdaXW([p], lr=1, betas=(0, 0), eps=0, weight_decay=0)
    q = parameter(torch.float64)
    tensors = AdaXW([q], lr=torch.tensor(1.0), betas=(torch.tensor(0.0), 0.0), eps=0.0, weight_decay=0.0)
    for _ in range(3):
        p.grad, q.grad = torch.tensor([2.0, -3.0]).double(), torch.tensor([2.0, -3.0]).double()
        optimizer.step()
        tensors.step()
    assert p.tolist() == q.tolist() == pytest.approx([-2.0, 4.0])


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("backend", [{}, {"foreach": True}, {"foreach": False}, {"capturable": True}])
def test_a_gradient_that_is_not_finite_does_what_torchs_adamw_does(bad, backend):
    """Without a GradScaler the step is taken, and the state shows it."""
    p, q = parameter(), parameter()
    ours = create("adamw", [p], **backend)
    theirs = torch.optim.AdamW([q])
    for g in ([1.0, 1.0], [bad, 1.0], [1.0, 1.0]):
        p.grad, q.grad = torch.tensor(g), torch.tensor(g)
        ours.step()
        theirs.step()
    torch.testing.assert_close(p, q, equal_nan=True)
    for key in ("exp_avg", "exp_avg_sq"):
        finite = torch.isfinite(theirs.state[q][key])
        assert torch.equal(torch.isfinite(ours.state[p][key]), finite)


def test_step_parameter_of_a_stranger():
    with pytest.raises(ValueError, match="not a parameter of the optimizer"):
        AdaXW([parameter()]).step_parameter(parameter())


def test_numpy_numbers_become_plain_ones():
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = AdaXW(
        [{"params": [p], "weight_decay": np.float32(0.5)}], lr=np.float32(0.25), betas=(np.float64(0.5), 1e-4)
    )
    group = optimizer.param_groups[0]
    assert [type(group[k]) for k in ("lr", "weight_decay", "reference_lr")] == [float] * 3
    assert (group["lr"], group["weight_decay"], group["betas"]) == (0.25, 0.5, (0.5, 1e-4))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lr": torch.tensor(1e-3)}, "lr as a tensor on the CPU: the graph keeps its current value"),
        ({"betas": (torch.tensor(0.9), 1e-4)}, r"betas\[0\] as a tensor on the CPU"),
        ({"lr": 1e-3}, None),
    ],
)
def test_what_a_graph_would_keep_for_ever_is_refused(monkeypatch, options, says):
    optimizer = AdaXW([parameter()], capturable=True, **options)
    for question in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, question, lambda: True)
    if says is None:
        optimizer._check_capture()
    else:
        with pytest.raises(RuntimeError, match=says):
            optimizer._check_capture()
