"""Scenarios that test_distributed.py runs under torchrun with real process groups; each leaves a file.

    torchrun --nproc-per-node=2 distributed_program.py <folder> <scenario> [<scenario> ...]

On CPU with gloo, on a GPU with NCCL where ADAXOPT_DEVICE=cuda; with TRITON_INTERPRET=1 the kernel steps CPU shards.
Rank 0 writes <folder>/<scenario>_<world size>.pt. Every scenario trains `model()` on `batches()`; what a process sees
of a batch is its share, so the mean of the gradients over processes is the gradient of the whole.
"""

import copy
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import adaxopt

STEPS = 6
DEVICE = torch.device(os.environ.get("ADAXOPT_DEVICE", "cpu"))
OPTIONS = {"lr": 1e-2, "weight_decay": 0.1, "betas": (0.9, 1e-2)}


def model():
    """Two linear layers of which neither size is a multiple of 4, so that shards are uneven."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).double().to(DEVICE)


def batches(steps=STEPS):
    generator = torch.Generator().manual_seed(4)
    return [
        (
            torch.randn(8, 6, generator=generator, dtype=torch.float64).to(DEVICE),
            torch.randn(8, 3, generator=generator, dtype=torch.float64).to(DEVICE),
        )
        for _ in range(steps)
    ]


def share(tensor):
    return tensor.chunk(dist.get_world_size())[dist.get_rank()] if dist.is_initialized() else tensor


def loss(net, batch, whole=False):
    x, y = batch if whole else (share(batch[0]), share(batch[1]))
    return ((net(x) - y) ** 2).mean()


def train(net, optimizer, some, whole=False, clip=None):
    for batch in some:
        optimizer.zero_grad()
        loss(net, batch, whole).backward()
        if clip is not None:
            clip(net.parameters(), 0.05)
        optimizer.step()


def reference(steps=STEPS, **options):
    """What one process computes on whole batches."""
    net = model()
    optimizer = adaxopt.AdaXW(net.parameters(), **{**OPTIONS, **options})
    for x, y in batches(steps):
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        optimizer.step()
    return full(net)


def full(net):
    return {
        name.removeprefix("module."): (p.full_tensor() if isinstance(p, DTensor) else p).detach().clone()
        for name, p in net.named_parameters()
    }


def kernels(optimizer):
    """How many launches of the fused kernel a step of this process has become."""
    from adaxopt.torch import fused_cuda

    shares = [share for plan in optimizer._plans.values() for share, *_ in plan.shares]
    return sum(isinstance(share, fused_cuda.Share) for share in shares)


def ddp():
    net = DistributedDataParallel(model())
    train(net, adaxopt.AdaXW(net.parameters(), **OPTIONS), batches())
    mine = torch.cat([p.detach().flatten() for p in net.parameters()])
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    return {"params": full(net), "replicas_equal": all(torch.equal(every[0], other) for other in every)}


def sharded(net=None, **options):
    net = net or model()
    fully_shard(net[0], **options)
    fully_shard(net[2], **options)
    return fully_shard(net, **options)


def fsdp2():
    found = {}
    for name, options in {
        "default": {},
        "foreach": {"foreach": True},
        "loop": {"foreach": False},
        "fused": {"fused": True},
        "clip_update": {"clip_update": 0.05},
        "l2": {"decay": "l2"},
        "capturable": {"capturable": True},
        "tensor_lr": {"lr": torch.tensor(1e-2, dtype=torch.float64)},
    }.items():
        net = sharded()
        optimizer = adaxopt.AdaXW(net.parameters(), **{**OPTIONS, **options})
        train(net, optimizer, batches())
        found[name] = {
            "params": full(net),
            "reference": reference(**{**options, "foreach": True, "fused": None}),
            "kernels": kernels(optimizer),
        }
    found["stats"] = optimizer.stats()
    return found


def mixed():
    """Tensor and DTensor parameters in one group: the first layer sharded, the second plain on every process."""
    net = model()
    fully_shard(net[0])
    optimizer = adaxopt.AdaXW(net.parameters(), **OPTIONS)
    kinds = {type(p).__name__ for p in optimizer.param_groups[0]["params"]}
    for batch in batches():
        optimizer.zero_grad()
        loss(net, batch).backward()
        for p in net[2].parameters():
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
        optimizer.step()
    return {
        "params": full(net),
        "tensor_and_dtensor": any("DTensor" in type(p.data).__name__ for p in net.parameters()),
        "kinds": kinds,
        "kernels": kernels(optimizer),
    }


def tensor_parallel():
    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = adaxopt.AdaXW(net.parameters(), **OPTIONS)
    train(net, optimizer, batches(), whole=True)
    placements = {name: str(getattr(p, "placements", None)) for name, p in net.named_parameters()}
    return {"params": full(net), "placements": placements, "kernels": kernels(optimizer)}


def zero():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=adaxopt.AdaXW, **OPTIONS)
    train(net, optimizer, batches())
    optimizer.consolidate_state_dict(to=0)
    state = optimizer.state_dict() if dist.get_rank() == 0 else None
    return {"params": full(net), "state": state}


def clipping():
    found = {}
    for name, clip in {"torch": nn.utils.clip_grad_norm_, "adaxopt": adaxopt.clip_grad_norm_}.items():
        net = sharded()
        norms = []

        def noted(params, bound, clip=clip, norms=norms):
            norm = clip(params, bound)
            norms.append((norm.full_tensor() if isinstance(norm, DTensor) else norm).item())

        train(net, adaxopt.AdaXW(net.parameters(), **OPTIONS), batches(), clip=noted)
        found[name] = {"params": full(net), "norms": norms}
    net = model()
    optimizer = adaxopt.AdaXW(net.parameters(), **OPTIONS)
    norms = []
    for x, y in batches():
        optimizer.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        norms.append(nn.utils.clip_grad_norm_(net.parameters(), 0.05).item())
        optimizer.step()
    found["reference"] = {"params": full(net), "norms": norms}
    return found


def stochastic():
    """bfloat16 parameters rounded stochastically: a shard draws what the whole tensor would."""
    mesh = init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    generator = torch.Generator().manual_seed(5)
    whole = nn.Parameter(torch.randn(7, 3, generator=generator).bfloat16().to(DEVICE))
    part = nn.Parameter(distribute_tensor(whole.detach().clone(), mesh, [Shard(0)]))
    settings = {"lr": 1e-2, "rounding": "stochastic", "state_dtype": torch.bfloat16, "seed": 9}
    optimizers = [adaxopt.AdaXW([p], **settings) for p in (whole, part)]
    for _ in range(20):
        g = torch.randn(7, 3, generator=generator).bfloat16().to(DEVICE)
        whole.grad = g
        part.grad = distribute_tensor(g.clone(), mesh, [Shard(0)])
        for optimizer in optimizers:
            optimizer.step()
    return {
        "whole": whole.detach(),
        "part": part.detach().full_tensor(),
        "kernels": [kernels(optimizer) for optimizer in optimizers],
    }


def _folder(name):
    return os.path.join(sys.argv[1], name)


def _save(net, optimizer, name, **options):
    settings = StateDictOptions(**options)
    parts = get_state_dict(net, optimizer, options=settings)
    dcp.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=_folder(name))


def _load(net, optimizer, name, **options):
    settings = StateDictOptions(**options)
    parts = get_state_dict(net, optimizer, options=settings)
    state = {"model": parts[0], "optimizer": parts[1]}
    dcp.load(state, checkpoint_id=_folder(name))
    set_state_dict(
        net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=settings
    )


FLAVOURS = {"plain": {}, "flat": {"flatten_optimizer_state_dict": True}}


def save():
    """Half the steps, then a distributed checkpoint; and one of an optimizer that has never stepped."""
    for name, options in FLAVOURS.items():
        net = sharded()
        optimizer = adaxopt.AdaXW(net.parameters(), **OPTIONS)
        _save(net, optimizer, f"checkpoint_{name}_0", **options)
        train(net, optimizer, batches()[: STEPS // 2])
        _save(net, optimizer, f"checkpoint_{name}_{STEPS // 2}", **options)
        train(net, optimizer, batches()[STEPS // 2 :])
    whole = get_optimizer_state_dict(
        net, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return {"params": full(net), "state": whole if dist.get_rank() == 0 else None}


def resume():
    """The other half from the checkpoint, whatever the number of processes that wrote it."""
    found = {}
    for name, options in FLAVOURS.items():
        for done in (0, STEPS // 2):
            net = sharded()
            with torch.no_grad():
                for p in net.parameters():
                    p.zero_()
            optimizer = adaxopt.AdaXW(net.parameters(), lr=1.0)
            _load(net, optimizer, f"checkpoint_{name}_{done}", **options)
            train(net, optimizer, batches()[done:])
            found[f"{name}_{done}"] = full(net)
    return found


def full_state():
    """A whole state dict, as one process saves it, goes into a sharded optimizer by load_state_dict, and back."""
    alone = model()
    single = adaxopt.AdaXW(alone.parameters(), **OPTIONS)
    for batch in batches()[: STEPS // 2]:
        single.zero_grad()
        loss(alone, batch, whole=True).backward()
        single.step()
    net = sharded()
    whole = {k: v.detach() for k, v in alone.state_dict().items()}
    net.load_state_dict(
        {
            k: distribute_tensor(v, p.device_mesh, p.placements)
            for (k, v), p in zip(whole.items(), net.parameters(), strict=True)
        }
    )
    optimizer = adaxopt.AdaXW(net.parameters(), **OPTIONS)
    optimizer.load_state_dict(single.state_dict())
    train(net, optimizer, batches()[STEPS // 2 :])
    model_state = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    return {"params": full(net), "names": sorted(model_state)}


def hybrid():
    """Sharded within halves and copied across them; then rank 0's whole state goes to all, sharded in one dimension."""
    mesh = init_device_mesh(DEVICE.type, (2, dist.get_world_size() // 2), mesh_dim_names=("copies", "parts"))
    net = sharded(mesh=mesh)
    optimizer = adaxopt.AdaXW(net.parameters(), **OPTIONS)
    train(net, optimizer, batches()[: STEPS // 2])
    parts = get_state_dict(net, optimizer, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    parts = copy.deepcopy(parts)  # on CPU they are the optimizer's own tensors, as with torch's optimizers
    first = dist.get_rank() == 0
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    flat = sharded()
    other = adaxopt.AdaXW(flat.parameters(), lr=1.0)
    set_model_state_dict(flat, parts[0] if first else {}, options=options)
    set_optimizer_state_dict(flat, other, parts[1] if first else {}, options=options)
    for pair in ((net, optimizer), (flat, other)):
        train(*pair, batches()[STEPS // 2 :])
    placements = str(net[0].weight.placements)
    return {"params": full(net), "placements": placements, "broadcast": full(flat)}


def offload():
    """State moved to another place and brought back between steps (here by way of a state dict in host memory)."""
    net = sharded()
    optimizer = adaxopt.AdaXW(net.parameters(), **OPTIONS)
    for batch in batches():
        train(net, optimizer, [batch])
        away = get_optimizer_state_dict(net, optimizer, options=StateDictOptions(cpu_offload=True))
        optimizer.state.clear()
        set_optimizer_state_dict(net, optimizer, away)
    return {"params": full(net)}


def main():
    folder, names = Path(sys.argv[1]), sys.argv[2:]
    torch.set_num_threads(1)
    if DEVICE.type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if DEVICE.type == "cuda" else "gloo")
    for name in names:
        found = globals()[name]()
        if dist.get_rank() == 0:
            torch.save(found, folder / f"{name}_{dist.get_world_size()}.pt")
        dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # after FSDP, tensor parallelism or ZeRO torch holds groups, whose threads may abort at exit


if __name__ == "__main__":
    main()
