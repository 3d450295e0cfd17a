"""Run by test_plans.py in a process that interprets Triton kernels: the engine with the kernel, on CPU tensors.

Whatever is done between steps, the default path (the kernel) goes on as the foreach path does.
"""

import sys
from itertools import product

import torch

import adaxopt


def make(last=torch.float32, **options):
    generator = torch.Generator().manual_seed(0)
    shapes = [((5, 3), torch.float32), ((7,), torch.float32), ((2,), last)]
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
    replace_entry,
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
    served = [len(plan.plans) for plan in optimizer._plans.values()]
    worst = (ours - theirs).abs().max().item()
    right = served == [1] * 4 and worst < 2e-6
    print(f"{'ok' if right else 'WRONG'} inside backward {served} {worst:.1e}")
    return right


def main() -> int:
    failed = int(not inside_backward())
    for change in CHANGES:
        for without, last in product(((), (1,)), (torch.float32, torch.complex64)):
            kernel, foreach = make(last), make(last, foreach=True)
            for params, optimizer in (kernel, foreach):
                walk(params, optimizer, seed=1, without=without)
                change(params, optimizer)
                walk(params, optimizer, seed=2)
            served = sum(len(plan.plans) for plan in kernel[1]._plans.values())
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
            print(f"{'ok' if right else 'WRONG'} {change.__name__} {without} {last} {worst:.1e} {times}")
    return failed


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
