"""Scenarios that test_shards.py runs under torchrun; each compares with the same steps on whole tensors.

    torchrun --nproc-per-node=3 shards_program.py <folder> <scenario> [<scenario> ...]

Every process computes the whole-tensor reference itself. Rank 0 writes <folder>/<scenario>_<world size>.pt with what
every rank has found.
"""

import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import adaxopt

SHAPE = (5, 4)
"""Neither size is a multiple of 3, so that shards are uneven."""


def mesh(*names):
    """All processes in one dimension; with two names and four processes, in two of two."""
    size = dist.get_world_size()
    return init_device_mesh(
        "cpu", (size,) if len(names) < 2 else (2, size // 2), mesh_dim_names=names or None
    )


def whole(t):
    return (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone()


def gradients(shapes, dtype, steps=4):
    generator = torch.Generator().manual_seed(5)
    return [[torch.randn(s, generator=generator).to(dtype) for s in shapes] for _ in range(steps)]


def stepped(params, options, rows, method="adaxw"):
    """The whole parameters after these steps; a gradient is placed as its parameter is."""
    optimizer = adaxopt.create(method, params, **options)
    for row in rows:
        for p, g in zip(params, row, strict=True):
            p.grad = (
                distribute_tensor(g, p.device_mesh, p.placements) if isinstance(p, DTensor) else g.clone()
            )
        optimizer.step()
    return [whole(p) for p in params]


PLACEMENTS = {"rows": [Shard(0)], "columns": [Shard(1)], "copies": [Replicate()]}
NARROW = [
    {"rounding": "nearest"},
    {"rounding": "kahan"},
    {"rounding": "kahan", "foreach": False},
    {"rounding": "nearest", "capturable": True},
]


def narrow():
    """16-bit parameters in every placement, without stochastic rounding."""
    found = {}
    for dtype in (torch.bfloat16, torch.float16):
        start = torch.linspace(-2, 3, 20).reshape(SHAPE).to(dtype)
        for name, placements in PLACEMENTS.items():
            for i, options in enumerate(NARROW):
                part = nn.Parameter(distribute_tensor(start.clone(), mesh(), placements))
                rows = gradients([SHAPE], dtype)
                mine = stepped([part], {"lr": 1e-2, **options}, rows)
                alone = stepped([nn.Parameter(start.clone())], {"lr": 1e-2, **options}, rows)
                found[f"{name} {dtype} {i}"] = torch.equal(mine[0], alone[0]) and not torch.equal(
                    mine[0], start
                )
    return found


def layers():
    """parallelize_module and fully_shard with Shard(1), as users write it, trained in bfloat16 with Kahan summation."""
    size = dist.get_world_size()
    found = {}
    for name in ("tensor parallel", "fully_shard"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4 * size, 2 * size), nn.Tanh(), nn.Linear(2 * size, size)).bfloat16()
        before = [p.detach().clone() for p in net.parameters()]
        if name == "fully_shard":
            fully_shard(net, shard_placement_fn=lambda p: Shard(1) if p.dim() > 1 else Shard(0))
        else:
            parallelize_module(net, mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        optimizer = adaxopt.AdaXW(net.parameters(), lr=1e-2, rounding="kahan")
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 4 * size).bfloat16()).square().sum().backward()
            optimizer.step()
        after = [whole(p) for p in net.parameters()]
        found[name] = [float(optimizer.state[p]["step"]) for p in net.parameters()]
        found[f"{name} moved"] = all(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    return found


EIGHT = {
    "8-bit state": {"state_dtype": torch.uint8},
    "and 24-bit weights": {"state_dtype": torch.uint8, "rounding": "24bit"},
    "foreach": {"state_dtype": torch.uint8, "foreach": True},
}
EIGHT_SHAPES = ((5, 64), (7, 4, 8), (3,), (6, 5))
"""The last two have rows that end inside a group of 32: their state is wider."""


def eight():
    """8-bit state of sharded parameters: the same steps, codes and exponents as of whole tensors; and checkpoints."""
    found = {}
    for name, options in EIGHT.items():
        dtype = torch.bfloat16 if "rounding" in options else torch.float32
        rows = gradients(EIGHT_SHAPES, dtype, steps=5)
        made = {}
        for sharded in (True, False):
            starts = [torch.linspace(-2, 3, torch.Size(s).numel()).reshape(s).to(dtype) for s in EIGHT_SHAPES]
            if sharded:
                starts = [distribute_tensor(t, mesh(), [Shard(0)]) for t in starts]
            params = [nn.Parameter(t) for t in starts]
            optimizer = adaxopt.AdaXW(params, lr=1e-2, **options)
            for row in rows:
                for p, g in zip(params, row, strict=True):
                    p.grad = distribute_tensor(g, mesh(), [Shard(0)]) if sharded else g.clone()
                optimizer.step()
            made[sharded] = optimizer, params
        (mine, parts), (alone, wholes) = made[True], made[False]
        narrow = [mine.state[p]["exp_avg_sq"].dtype for p in parts]
        found[f"{name}: codes where rows hold whole groups"] = (
            narrow == [torch.uint8] * 2 + [torch.float32] * 2
        )
        for i in (0, 1):
            same = torch.equal(whole(parts[i]), wholes[i].detach())
            for key, value in mine.state[parts[i]].items():
                same = same and torch.equal(whole(value).reshape(-1), alone.state[wholes[i]][key].reshape(-1))
            found[f"{name}: parameter {i} as on one process"] = same
        file = {
            "state": {i: {k: whole(v) for k, v in mine.state[p].items()} for i, p in enumerate(parts)},
            "param_groups": mine.state_dict()["param_groups"],
        }
        other = adaxopt.AdaXW([nn.Parameter(whole(p)) for p in parts])
        other.load_state_dict(file)
        back = adaxopt.AdaXW([nn.Parameter(p.detach().clone()) for p in parts])
        back.load_state_dict(other.state_dict())
        before, after = ([one.state[p] for p in one.param_groups[0]["params"]] for one in (mine, back))
        found[f"{name}: a checkpoint of whole tensors and back"] = all(
            a.keys() == b.keys() and all(torch.equal(whole(a[k]), whole(b[k])) for k in a)
            for a, b in zip(before[:2], after[:2], strict=True)
        )
        wide = adaxopt.cast_state_dict(mine.state_dict(), torch.float32)["state"][0]["exp_avg"]
        want = adaxopt.cast_state_dict(other.state_dict(), torch.float32)["state"][0]["exp_avg"]
        found[f"{name}: expanded"] = isinstance(wide, DTensor) and torch.equal(whole(wide), want)
        found[f"{name}: stats"] = mine.stats()[0]["step"] == 5.0
    return found


REFUSED = {
    "rounding": {"rounding": "stochastic"},
    "state": {"state_dtype": torch.bfloat16},
    "state of float32": {"state_dtype": torch.bfloat16, "dtype": torch.float32},
    "capturable": {"rounding": "stochastic", "capturable": True},
    "one column": {"rounding": "stochastic", "shape": (3, 1)},
}


def refused():
    """A step that must be refused in its second group, on every rank, leaves the first as it was."""
    found = {}
    for name, given in REFUSED.items():
        options = dict(given)
        dtype, shape = options.pop("dtype", torch.bfloat16), options.pop("shape", SHAPE)
        start = torch.ones(shape, dtype=dtype)
        first = nn.Parameter(distribute_tensor(start, mesh(), [Shard(0)]))
        second = nn.Parameter(distribute_tensor(start, mesh(), [Shard(1)]))
        optimizer = adaxopt.AdaXW([first], lr=0.1, **options)
        first.grad = distribute_tensor(start, mesh(), [Shard(0)])
        optimizer.step()
        optimizer.add_param_group({"params": [second]})
        second.grad = distribute_tensor(start, mesh(), [Shard(1)])
        before = [first._local_tensor.clone(), second._local_tensor.clone()]
        try:
            optimizer.step()
            message = ""
        except (TypeError, ValueError) as e:
            message = str(e)
        same = torch.equal(before[0], first._local_tensor) and torch.equal(before[1], second._local_tensor)
        found[name] = (message, same, float(optimizer.state[first]["step"]), second in optimizer.state)
    return found


def warm_up():
    """A first step at lr 0 in which some ranks hold gradients of zero only, or no elements at all."""
    found = {}
    words = torch.tensor([0, 0, 1])  # rows of the first rank only
    for name, rows in {"embedding": 4, "fewer rows than ranks": 2}.items():
        results = []
        for sharded in (False, True):
            torch.manual_seed(0)
            net = nn.Embedding(rows, 1).double()
            if sharded:
                fully_shard(net)
            optimizer = adaxopt.AdaXW(net.parameters(), lr=0.1, betas=(0.9, 1e-2))
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: t / 3)
            for t in range(5):
                optimizer.zero_grad()
                net(words if t == 0 else words % rows + (t % rows > 1)).sin().sum().backward()
                optimizer.step()
                schedule.step()
            results.append((whole(net.weight), float(optimizer.state[net.weight]["step"])))
        found[name] = {"params": [r[0] for r in results], "steps": [r[1] for r in results]}
    return found


def zero_warm_up():
    """The same where ZeRO gives each process some of the parameters, all but one with gradients of zero."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    results = []
    for sharded in (False, True):
        net = DistributedDataParallel(nn.ParameterList(torch.ones(3).double() for _ in range(4)))
        kind = (
            ZeroRedundancyOptimizer
            if sharded
            else lambda params, optimizer_class, **k: optimizer_class(params, **k)
        )
        optimizer = kind(net.parameters(), optimizer_class=adaxopt.AdaXW, lr=0.0)
        for t in range(3):
            for i, p in enumerate(net.parameters()):
                p.grad = torch.full_like(p, float(t > 0 or i == 0))
            optimizer.step()
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * (t + 1)
        results.append([p.detach().clone() for p in net.parameters()])
    return [torch.equal(a, b) for a, b in zip(*results, strict=True)]


def zero_rounding():
    """Stochastic rounding of parameters and state under ZeRO: the bits of one process, whatever the number of ranks."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    found = {}
    shapes = [(7,), (3, 2), (7,), (1, 5), (2,), (7,)]
    for name, dtype, options in (
        ("parameters", torch.bfloat16, {"rounding": "stochastic"}),
        ("one by one", torch.float16, {"rounding": "stochastic", "foreach": False}),
        ("state", torch.float32, {"state_dtype": torch.bfloat16, "seed": 3}),
        ("8-bit state", torch.float32, {"state_dtype": torch.uint8}),
        ("24-bit weights", torch.bfloat16, {"state_dtype": torch.uint8, "rounding": "24bit"}),
    ):
        for groups in (1, 2):
            results, saved = [], []
            for sharded in (False, True):
                params = [nn.Parameter(torch.ones(s, dtype=dtype)) for s in shapes]
                first = params if groups == 1 else params[:4]
                if sharded:
                    optimizer = ZeroRedundancyOptimizer(first, adaxopt.AdaXW, lr=1e-3, **options)
                else:
                    optimizer = adaxopt.AdaXW(first, lr=1e-3, **options)
                for t, row in enumerate(gradients(shapes, dtype, 6)):
                    if t == 2 and groups == 2:
                        optimizer.add_param_group({"params": params[4:]})
                    for p, g in zip(params, row, strict=True):
                        p.grad = g.clone()
                    optimizer.step()
                results.append(torch.cat([p.detach().flatten() for p in params]))
                if sharded:
                    optimizer.consolidate_state_dict(to=0)
                if dist.get_rank() == 0:
                    saved.append(optimizer.state_dict()["state"])
            found[f"{name} {groups}"] = torch.equal(*results)
            if saved:
                found[f"{name} {groups}, saved"] = all(
                    torch.equal(value, saved[1][i][key])
                    for i, entry in saved[0].items()
                    for key, value in entry.items()
                )
    return found


def clipping():
    """Norms and clipped gradients of mixtures, beside those of the same gradients as plain tensors."""
    generator = torch.Generator().manual_seed(6)
    size = dist.get_world_size()
    meshes = [mesh()] + ([mesh("a", "b")] if size == 4 else [])
    found = {}
    for norm_type in (2.0, 1.0, 3.0, float("inf")):
        for bound in (0.5, 1e6):
            kinds = {
                "tensor and dtensor": ["plain", (0, [Shard(0)])],
                "sparse and dtensor": ["sparse", (0, [Shard(0)]), (0, [Shard(1)])],
                "all kinds": ["sparse", (0, [Replicate()]), "plain", (0, [Shard(0)]), "empty", "uncoalesced"],
                "dtensors": [(0, [Shard(0)]), (0, [Shard(1)])],
            }
            if size == 4:
                kinds["two meshes"] = [
                    (0, [Shard(0)]),
                    (1, [Replicate(), Shard(0)]),
                    (1, [Shard(0), Shard(1)]),
                ]
            for name, row in kinds.items():
                params, expected = [], []
                for kind in row:
                    g = torch.randn(SHAPE, generator=generator).double()
                    if kind == "empty":
                        g = torch.zeros_like(g)
                    p = nn.Parameter(torch.zeros_like(g))
                    expected.append(nn.Parameter(torch.zeros_like(g)))
                    expected[-1].grad = g
                    if isinstance(kind, tuple):
                        p = nn.Parameter(distribute_tensor(p.detach(), meshes[kind[0]], kind[1]))
                        p.grad = distribute_tensor(g.clone(), meshes[kind[0]], kind[1])
                    elif kind == "uncoalesced":
                        half = (g / 2).to_sparse(1)
                        p.grad = half + half
                    else:
                        p.grad = g.clone() if kind == "plain" else g.to_sparse(1)
                    params.append(p)
                norm = adaxopt.clip_grad_norm_(params, bound, norm_type)
                other = nn.utils.clip_grad_norm_(expected, bound, norm_type)
                pairs = [(whole(p.grad).to_dense(), q.grad) for p, q in zip(params, expected, strict=True)]
                found[f"{name} {norm_type} {bound}"] = (whole(norm), other, pairs)
    return found


def mistakes():
    """What used to give wrong numbers silently: v zeroed under fully_shard, sharded state in a whole optimizer, torch's
    checkpoint under ZeRO, steps in the backward pass under DDP."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def first_step_after_a_reset(sharded, how):
        torch.manual_seed(0)
        net = nn.Linear(4, 8, bias=False).double()
        if sharded:
            fully_shard(net)
        optimizer = adaxopt.AdaXW(net.parameters(), lr=1e-3, weight_decay=0.0)
        for t in range(40):
            if t == 39:
                for key in ("exp_avg", "exp_avg_sq"):
                    moment = optimizer.state[net.weight][key]
                    (moment.to_local() if how == "part" and sharded else moment).zero_()
                before = whole(net.weight)
            optimizer.zero_grad()
            x = torch.randn(3, 4, generator=torch.Generator().manual_seed(t)).double()
            net(x).square().sum().backward()
            optimizer.step()
        return whole(net.weight) - before, optimizer

    def message(call):
        try:
            call()
        except ValueError as error:
            return str(error)
        return ""

    found = {}
    plain, alone = first_step_after_a_reset(False, "whole")
    for how in ("whole", "part"):
        moved, optimizer = first_step_after_a_reset(True, how)
        found[f"reset, {how}"] = torch.allclose(moved, plain, rtol=1e-9, atol=0)
    sharded_state = optimizer.state_dict()
    found["sharded state"] = "(DTensor), and this parameter is not" in message(
        lambda: alone.load_state_dict(sharded_state)
    )
    for kind in (adaxopt.AdamW, adaxopt.AdaXW):
        p = nn.Parameter(torch.ones(3))
        theirs = torch.optim.AdamW([p])
        p.grad = torch.ones(3)
        theirs.step()
        zero = ZeroRedundancyOptimizer([p], optimizer_class=kind, lr=1e-3)
        zero.load_state_dict(theirs.state_dict())
        said = message(zero.step) if zero.optim.param_groups[0]["params"] else "not here: does not convert"
        found[f"zero {kind.__name__}"] = "does not convert" in said
    for sharded in (False, True):
        net = nn.Linear(4, 1)
        net = fully_shard(net) if sharded else DistributedDataParallel(net)
        hooks = adaxopt.step_in_backward(adaxopt.AdaXW(net.parameters()))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            net(torch.ones(2, 4)).sum().backward()
        warned = any("its replicas diverge" in str(w.message) for w in said)
        found[f"step in backward, {sharded}"] = warned != sharded
        hooks.remove()
    return found


def main():
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in names:
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, globals()[name]())
        if dist.get_rank() == 0:
            torch.save(every, folder / f"{name}_{dist.get_world_size()}.pt")
        dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # torch holds groups after FSDP or ZeRO, whose threads may abort at exit


if __name__ == "__main__":
    main()
