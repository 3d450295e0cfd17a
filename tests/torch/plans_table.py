"""Run by test_plans.py in a process that interprets Triton kernels: the engine with the kernel, on CPU tensors.

Whatever is done between steps, the default path (the kernel) goes on as the foreach path does.
"""

import itertools
import sys
import warnings

import torch

import adaxopt


def make(last=torch.float32, **options):
    generator = torch.Generator().manual_seed(0)
    shapes = [((5, 3), torch.float32), ((2,), last), ((7,), torch.float32), ((7,), torch.float32)]
    params = [torch.nn.Parameter(torch.randn(s, generator=generator, dtype=d)) for s, d in shapes]
    return params, adaxopt.AdaXW(params, lr=1e-2, **options)


def walk(params, optimizer, seed, steps=3, without=()):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for i, p in enumerate(params):
            g = torch.randn(p.shape, generator=generator, dtype=p.dtype)
            p.grad = None if i in without else g
        optimizer.step()


def replace_state(params, optimizer):
    for entry in optimizer.state.values():
        for key, old in list(entry.items()):
            entry[key] = old.clone()
            old.fill_(float("nan"))  # who still writes there is found out


def swap_storage(params, optimizer):
    for entry in optimizer.state.values():
        for tensor in entry.values():
            tensor.data = tensor.data.clone()


def swap_one_count(params, optimizer):
    step = optimizer.state[params[0]]["step"]
    step.data = step.data + 5


def replace_entry(params, optimizer):
    old = optimizer.state[params[0]]
    optimizer.state[params[0]] = {key: tensor.clone() for key, tensor in old.items()}
    for tensor in old.values():
        tensor.fill_(float("nan"))


def exchange_entries(params, optimizer):
    """The list of entries is as it was: who owns them is not."""
    one, other = (optimizer.state.pop(p) for p in params[-2:])
    optimizer.state[params[-1]], optimizer.state[params[-2]] = one, other


def swap_one_mean(params, optimizer):
    mean = optimizer.state[params[1]].get("exp_avg")
    if mean is not None:
        mean.data = mean.data * 3


def a_note_of_someone_else(params, optimizer):
    optimizer.state[params[0]]["note"] = "looked at"


def forget_one(params, optimizer):
    optimizer.state[params[0]] = {}


def drop_one(params, optimizer):
    del optimizer.state[params[0]]


def move_parameters(params, optimizer):
    for p in params:
        p.data = p.data.clone()


def forget(params, optimizer):
    optimizer.state.clear()


def new_options(params, optimizer):
    optimizer.param_groups[0].update(maximize=True, lr=3e-3, weight_decay=0.3)


def reload(params, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def another_group(params, optimizer):
    params.append(torch.nn.Parameter(torch.ones(4)))
    optimizer.add_param_group({"params": [params[-1]], "lr": 0.1})


def restart(params, optimizer):
    optimizer.restart_memory()


def swap_parameter(params, optimizer):
    old, params[0] = params[0], torch.nn.Parameter(params[0].detach().clone())
    optimizer.param_groups[0]["params"][0] = params[0]
    optimizer.state[params[0]] = optimizer.state.pop(old)


def replace_group(params, optimizer):
    optimizer.param_groups[0] = dict(optimizer.param_groups[0])


def nothing(params, optimizer):
    pass


CHANGES = (
    nothing,
    replace_state,
    swap_storage,
    swap_one_count,
    swap_one_mean,
    replace_entry,
    exchange_entries,
    a_note_of_someone_else,
    forget_one,
    drop_one,
    move_parameters,
    forget,
    new_options,
    reload,
    another_group,
    restart,
    swap_parameter,
    replace_group,
)
STARTS = ((), 3, torch.complex64), ((1,), 3, torch.float32), ((), 1, torch.float32)
"""Parameters without a gradient before the change, steps before it, the second parameter's dtype."""


def inside_backward() -> bool:
    """Steps inside backward take the kernel too, a table for each parameter, and follow lr and other options."""
    ends = []
    for options in ({}, {"foreach": True}):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
        optimizer = adaxopt.AdaXW(model.parameters(), **options)
        hooks = adaxopt.step_in_backward(optimizer)
        with torch.enable_grad():
            for t in range(6):
                optimizer.param_groups[0].update(lr=1e-2 / (1 + t), maximize=t == 4)
                model(torch.full((2, 4), 1.0 + t)).square().sum().backward()
                if t == 2:
                    move_parameters(list(model.parameters()), optimizer)
                if t == 3:
                    replace_entry(list(model.parameters()), optimizer)
        hooks.remove()
        ends.append((torch.cat([p.detach().flatten() for p in model.parameters()]), optimizer))
    (ours, optimizer), (theirs, _) = ends
    served = [len(plan.shares) for plan in optimizer._plans.values()]
    worst = (ours - theirs).abs().max().item()
    right = served == [1] * 4 and worst < 2e-6
    print(f"{'ok' if right else 'WRONG'} inside backward {served} {worst:.1e}")
    return right


def state_of_several_dtypes() -> bool:
    """State whose dtypes the kernel does not pair goes the foreach way: it would read and write past the smaller."""
    right = True
    for name, dtype in (
        ("exp_avg_sq", torch.bfloat16),
        ("max_exp_avg_sq", torch.float64),
        ("exp_avg", torch.float8_e4m3fn),
    ):
        ends = []
        for options in ({}, {"foreach": True}):
            params = [torch.nn.Parameter(torch.linspace(-1, 1, 40)), torch.nn.Parameter(torch.ones(3))]
            optimizer = adaxopt.create("amsgradw", params, lr=1e-2, **options)
            walk(params, optimizer, 1)
            entry = optimizer.state[params[0]]
            entry[name] = entry[name].to(dtype)
            walk(params, optimizer, 2)
            ends.append((params, optimizer))
        served = [p.numel() for plan in ends[0][1]._plans.values() for _, ps, _ in plan.shares for p in ps]
        worst = max((a - b).abs().max().item() for a, b in zip(ends[0][0], ends[1][0], strict=True))
        kept = ends[0][1].state[ends[0][0][0]][name].dtype == dtype
        right = right and served == [3] and worst < 2e-6 and kept
        print(f"{name} in {dtype}: {served} {worst:.1e}")
    print(f"{'ok' if right else 'WRONG'} state of several dtypes")
    return right


def refused() -> bool:
    """What is refused of a first gradient is refused of a later one, and half a state is refused in words."""
    said = []
    for options in ({}, {"foreach": True}):
        params = [torch.nn.Parameter(torch.ones(4, 3)), torch.nn.Parameter(torch.ones(4))]
        optimizer = adaxopt.create("sgdm", params, lr=0.1, **options)
        walk(params, optimizer, 1)
        params[0].grad = torch.sparse_coo_tensor([[0]], torch.ones(1, 3), (4, 3), check_invariants=True)
        try:
            optimizer.step()
            said.append(None)
        except ValueError as error:
            said.append(str(error))
    params, optimizer = make()
    walk(params, optimizer, 1)
    del optimizer.state[params[0]]["exp_avg"]
    try:
        walk(params, optimizer, 1)
        said.append(None)
    except ValueError as error:
        said.append(str(error))
    params, optimizer = make(fused=True)
    walk(params, optimizer, 1)
    params[0].grad = torch.ones(3, 5).t()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        optimizer.step(), optimizer.step()
    said += [(str(w.message), w.filename) for w in warned if w.category is UserWarning]
    once = (
        "fused=True: a parameter takes the foreach path, because its gradient has another memory layout",
        __file__,
    )
    right = (
        said[0] == said[1] is not None and said[3] == once and "has no exp_avg in its state" in str(said[2])
    )
    print(f"{'ok' if right else 'WRONG'} refused {said}")
    return right


def freed_memory() -> bool:
    """A gradient, a parameter or a state whose storage was freed: an error of torch's, never an access."""
    said = []
    places = ("gradient", "later gradient", "parameter", "state", "time")
    for what, offset in itertools.product(places, (5, 2000, 1 << 26)):
        params, optimizer = make()
        walk(params, optimizer, 1, steps=2)
        flat = torch.empty(offset + 40)
        for p in params:
            p.grad = flat.clone()[offset : offset + p.numel()].fill_(1.0).view(p.shape)
        if what == "later gradient":
            optimizer.step()  # by now the gradients' layouts are known
        entry = optimizer.state[params[0]]
        kept = {"parameter": params[0].data, "state": entry["exp_avg"], "time": entry["step"]}
        gone = kept.get(what, params[0].grad)
        gone.untyped_storage().resize_(0)
        try:
            optimizer.step()
            said.append(None)
        except RuntimeError as error:
            said.append("not allocated" in str(error) or "storage" in str(error) or str(error))
    right = said == [True] * 15
    print(f"{'ok' if right else 'WRONG'} freed memory {said}")
    return right


def main() -> int:
    failed = sum(not right() for right in (inside_backward, state_of_several_dtypes, refused, freed_memory))
    for change in CHANGES:
        for without, before, last in STARTS:
            kernel, foreach = make(last), make(last, foreach=True)
            for params, optimizer in (kernel, foreach):
                walk(params, optimizer, 1, before, without)
                change(params, optimizer)
                walk(params, optimizer, seed=2)
            served = sum(len(plan.shares) for plan in kernel[1]._plans.values())
            worst = max(
                (torch.view_as_real(a) if a.is_complex() else a)
                .sub(torch.view_as_real(b) if b.is_complex() else b)
                .abs()
                .max()
                .item()
                for a, b in zip(kernel[0], foreach[0], strict=True)
            )
            times = [[float(o.state[p]["step"]) for p in params] for params, o in (kernel, foreach)]
            right = served > 0 and worst < 2e-6 and times[0] == times[1]
            failed += not right
            row = f"{change.__name__} {without} {before} {last}"
            print(f"{'ok' if right else 'WRONG'} {row} {worst:.1e} {times}")
    return failed


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
