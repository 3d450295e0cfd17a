"""One optimizer for every method: groups, state, and the choice of a backend. The mathematics is elsewhere.

which step                                        who computes it
differentiable                                    operators
rows in their own time (sparse gradients)         operators, on the rows
captured in a graph, or compiled                  foreach with device numbers; on CUDA the fused kernel
CUDA                                              the fused kernel; foreach for what it cannot serve
CPU                                               torch's fused kernel; foreach for what it cannot serve
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from adaxopt.torch import checkpoint, fused_cpu, operators, options, precision, state
from adaxopt.torch.foreach import Project
from adaxopt.torch.plans import GroupPlan
from adaxopt.zoo import Method


def _graph_break_where_compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Run a step without gradients, or with them where it is differentiable.

    Compiled, the step begins a graph of its own: only so does the compiler see that parameters change in place.
    """

    @functools.wraps(step)
    def wrapped(self: Engine, closure: Callable[[], Any] | None = None) -> Any:
        before = torch.is_grad_enabled()
        try:
            torch.set_grad_enabled(self.defaults["differentiable"])
            if torch.compiler.is_compiling():
                torch._dynamo.graph_break()
            return step(self, closure)
        finally:
            if torch.compiler.is_compiling():
                torch._dynamo.graph_break()
            torch.set_grad_enabled(before)

    return wrapped


class Engine(Optimizer):
    """The engine behind every public class: a class gives it a signature and a method, nothing else."""

    method: ClassVar[Method]

    def __init__(self, params: Any, given: dict[str, Any], project: Project | None = None) -> None:
        if project is not None and not callable(project):
            raise TypeError(f"project={project!r}: must be Box, Ball or a callable (y, d) -> x")
        known = {**options.ENGINE_DEFAULTS, **self.method.defaults}
        unknown = sorted(set(given) - set(known))
        if unknown:
            allowed = ", ".join(sorted(set(known) - {"format"}))
            raise TypeError(f"{type(self).__name__}: unknown argument {unknown[0]!r}; allowed are {allowed}")
        defaults = {**known, **given}
        options.check(defaults, self.method.rule)
        self._project = project
        self._forget_caches()
        super().__init__(params, {**defaults, "memory": _kind(self.method)})
        self._announce_scaling()

    # -- groups and state ---------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; what is not given is the optimizer's default."""
        if isinstance(param_group, dict):
            merged = {**self.defaults, **param_group}
            if any(
                key not in self.defaults or param_group[key] is not self.defaults[key] for key in param_group
            ):
                with warnings.catch_warnings():
                    if merged["betas"] == self.defaults["betas"]:
                        warnings.simplefilter("ignore")  # said once, by the constructor
                    options.check(merged, self.method.rule)
            if (
                merged["decay"] == "fully_decoupled"
                and merged["weight_decay"]
                and not float(merged["lr"]) > 0
            ):
                raise ValueError(
                    f"lr={merged['lr']!r}: fully decoupled decay is measured against the first lr, which must be > 0"
                )
            if isinstance(param_group.get("params"), Iterable) and not isinstance(
                param_group["params"], (Tensor, set)
            ):
                param_group["params"] = list(param_group["params"])
                for entry in param_group["params"]:
                    tensor = entry[1] if isinstance(entry, tuple) else entry
                    if isinstance(tensor, Tensor):
                        options.check_parameter(tensor)
            elif isinstance(param_group.get("params"), Tensor):
                options.check_parameter(param_group["params"])
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        lr = group["lr"]
        group.setdefault("reference_lr", lr.detach().clone() if isinstance(lr, Tensor) else lr)
        self._forget_caches()
        self._announce_scaling()

    def _forget_caches(self) -> None:
        self._guarded: dict[Tensor, bool] = {}
        self._plans: dict[int, GroupPlan] = {}
        self._places: dict[Tensor, int] = {}

    def _announce_scaling(self) -> None:
        """GradScaler hands over its scale only to a step that was asked to be fused, as with torch's optimizers."""
        self._step_supports_amp_scaling = any(group.get("fused") for group in self.param_groups)

    def _place(self, p: Tensor) -> int:
        """The parameter's place in the optimizer: what a checkpoint calls it, and chance is drawn from."""
        if p not in self._places:
            every = (q for group in self.param_groups for q in group["params"])
            self._places = {q: i for i, q in enumerate(every)}
        return self._places[p]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_project": self._project}

    def __setstate__(self, given: dict[str, Any]) -> None:
        super().__setstate__(given)
        self.__dict__.setdefault("_project", None)
        self._forget_caches()
        for group in self.param_groups:
            for key, value in self.defaults.items():
                group.setdefault(key, value)
            group.setdefault("reference_lr", group["lr"])
            for p in group["params"]:
                if self.state.get(p):
                    self.state[p]["step"] = self.state[p]["step"].to(state.step_device(p, group))
        self._announce_scaling()

    @torch._disable_dynamo
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave. State keeps the dtype it was saved in; nothing is changed if anything is wrong.

        A checkpoint of torch's AdamW or of the released AdaX code is refused here: their second moments are other
        numbers. `load_adamw_state_dict` and `load_released_state_dict` convert them.
        """
        checkpoint.load(self, state_dict)

    def restart_memory(self) -> None:
        """Set every parameter's time to 0, as for fine-tuning: the next gradient's square replaces v.

        An AdaX loaded after 500,000 steps has a memory that no longer moves. The mean m goes on, unless the method
        corrects its bias by a time that has just become 0.
        """
        for entry in self.state.values():
            for key in ("step", "row_step", "max_exp_avg_sq", "window"):
                if key in entry:
                    entry[key].zero_()
            if (self.method.rule.debias or self.method.rule.mean == "window") and "exp_avg" in entry:
                entry["exp_avg"].zero_()
        self._guarded.clear()

    def stats(self) -> list[dict[str, float]]:
        """What the optimizer is doing, per group: see `adaxopt.torch.stats.stats`."""
        from adaxopt.torch.stats import stats

        return stats(self)

    # -- the step -----------------------------------------------------------------------------------------------

    @_graph_break_where_compiled
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. `closure`, where given, re-evaluates the model and returns the loss."""
        self._accelerator_graph_capture_health_check()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if torch.compiler.is_compiling():
                self._step_on_device(group)
            elif group["differentiable"]:
                self._step_differentiable(group)
            else:
                self._step_eagerly(group, group["params"])
        return loss

    def step_parameter(self, p: Tensor) -> None:
        """Step one parameter alone (its own count goes on by one): for steps inside the backward pass."""
        for group in self.param_groups:
            if any(q is p for q in group["params"]):
                with torch.no_grad():
                    self._step_eagerly(group, [p])
                return
        raise ValueError("step_parameter: this tensor is not a parameter of the optimizer")

    def _init_group(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        ms: list[Tensor],
        vs: list[Tensor],
        tops: list[Tensor],
        compensations: list[Tensor],
        windows: list[Tensor],
        steps: list[Tensor],
        among: list[Tensor] | None = None,
    ) -> None:
        """Fill the lists with every parameter that has a dense gradient, creating state on the way.

        torch.compile runs this function instead of tracing it, by its name.
        """
        rule = self.method.rule
        for p in group["params"] if among is None else among:
            g = p.grad
            if g is None:
                continue
            entry = self.state[p]
            if len(entry) == 0:
                entry.update(state.create(p, group, rule))
            params.append(p)
            grads.append(g)
            steps.append(entry["step"])
            if rule.mean != "none":
                ms.append(entry["exp_avg"])
            if rule.memory is not None:
                vs.append(entry["exp_avg_sq"])
            if rule.maximum:
                tops.append(entry["max_exp_avg_sq"])
            if "compensation" in entry:
                compensations.append(entry["compensation"])
            if rule.mean == "window":
                windows.append(entry["window"])

    def _step_differentiable(self, group: dict[str, Any]) -> None:
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.is_sparse:
                raise ValueError(
                    "differentiable=True: sparse gradients are not differentiable; make them dense"
                )
            entry = self.state[p]
            if len(entry) == 0:
                entry.update(state.create(p, group, self.method.rule))
            operators.differentiable_step(p, p.grad, entry, self.method, group)

    def _step_eagerly(self, group: dict[str, Any], params: list[Tensor]) -> None:
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        kernel = params is group["params"] and group["fused"] is not False and group["foreach"] is None
        if kernel and any(p.is_cuda for p in params):
            params = self._step_by_kernel(group, scale, found_inf)
            if not params:
                return
        if found_inf is not None and found_inf.item():
            return
        if group["capturable"] and not any(p.grad is not None and p.grad.is_sparse for p in params):
            self._step_on_device(group, params, scale)
        else:
            self._step_on_host(group, params, scale)

    def _step_by_kernel(self, group: dict[str, Any], scale: Any, found_inf: Any) -> list[Tensor]:
        """Step what the CUDA kernel can serve and return the rest."""
        plan = self._plans.get(id(group))
        if plan is None or not plan.fits(group):
            plan = self._plans[id(group)] = GroupPlan(self, group)
        return plan.step(group, scale, found_inf)

    def _step_on_device(
        self, group: dict[str, Any], among: list[Tensor] | None = None, scale: Tensor | None = None
    ) -> None:
        """Every number that depends on time is a device scalar: for graphs and the compiler."""
        params: list[Tensor] = []
        grads: list[Tensor] = []
        ms: list[Tensor] = []
        vs: list[Tensor] = []
        tops: list[Tensor] = []
        compensations: list[Tensor] = []
        windows: list[Tensor] = []
        steps: list[Tensor] = []
        if among is None:
            self._init_group(group, params, grads, ms, vs, tops, compensations, windows, steps)
        else:
            self._init_group(group, params, grads, ms, vs, tops, compensations, windows, steps, among)
        if not params:
            return
        if scale is not None:
            grads = [g / scale for g in grads]
        torch._foreach_add_(steps, 1)
        time = torch.stack(steps)
        if torch.compiler.is_compiling():
            group = _traced(group, time)
        work = torch.float64 if _is_double(params[0]) else torch.float32
        n = self.method.numbers(
            time, {**group, "dtype": "float64" if _is_double(params[0]) else "float32"}, torch
        )
        n = n._replace(
            **{
                name: list(value.to(work).unbind())
                for name, value in (("k", n.k), ("s", n.s), ("eps", n.eps))
                if isinstance(value, Tensor) and value.dim() == 1
            }
        )
        self._update(group, params, grads, ms, vs, tops, compensations, windows, steps, n, range(len(params)))

    def _step_on_host(self, group: dict[str, Any], among: list[Tensor], scale: Tensor | None) -> None:
        """Numbers are Python floats: parameters of one time, device and dtype go together."""
        rule = self.method.rule
        if rule.memory is not None:
            self._step_rows(group, among, scale)
        lists: list[list[Tensor]] = [[] for _ in range(8)]
        self._init_group(group, *lists, [p for p in among if not self._in_rows(p)])  # type: ignore[call-arg, arg-type]
        params, grads, steps = lists[0], lists[1], lists[7]
        if not params:
            return
        for g in grads:
            if g.is_sparse:
                raise ValueError(
                    f"{type(self).__name__}: sparse gradients need a second moment kept row by row"
                )
        if scale is not None:
            grads[:] = [g / scale.to(g.device) for g in grads]
        if steps[0].is_cpu:
            torch._foreach_add_(steps, _ONE)
            times = [t.item() for t in steps]
        else:
            torch._foreach_add_(steps, 1)
            times = torch.stack(steps).tolist()
        guarded = self._look_for_sleepers(group, params, lists[3], times)
        buckets: dict[tuple[Any, ...], list[int]] = {}
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            moment = lists[3][i] if lists[3] else lists[2][i] if lists[2] else p
            buckets.setdefault(
                (p.device, p.dtype, g.dtype, moment.dtype, type(p), times[i], guarded[i]), []
            ).append(i)
        numbers: dict[tuple[float, bool], Any] = {}
        for (_, _, _, _, _, time, awake), members in buckets.items():
            double = _is_double(params[members[0]])
            n = numbers.get((time, double))
            if n is None:
                n = self.method.numbers(time, {**_floats(group), "dtype": "float64" if double else "float32"})
                numbers[time, double] = n
            for some in [members] if group["foreach"] is not False else [[i] for i in members]:
                taken = [[items[i] for i in some] if items else items for items in lists]
                taken[0] = [params[i] for i in some]
                if (
                    not awake
                    and group["foreach"] is None
                    and group["fused"] is not False
                    and taken[0][0].is_cpu
                ):
                    some_left = self._update_fused(group, taken, n)
                    if not some_left:
                        continue
                    taken = [[items[i] for i in some_left] if items else items for items in taken]
                self._update(group, *taken, n, range(len(taken[0])) if awake else ())  # type: ignore[misc, call-arg]

    def _in_rows(self, p: Tensor) -> bool:
        g = p.grad
        return (
            self.method.rule.memory is not None
            and g is not None
            and (g.is_sparse or "row_step" in self.state.get(p, {}))
        )

    def _step_rows(self, group: dict[str, Any], among: list[Tensor], scale: Tensor | None) -> None:
        """Parameters whose gradient is sparse now, or was before."""
        for p in among:
            if not self._in_rows(p):
                continue
            if self.method.rule.mean == "window":
                raise ValueError(
                    f"{type(self).__name__} does not support sparse gradients: its window is dense"
                )
            if self._project is not None:
                raise ValueError(
                    "project: sparse gradients change rows only; a projection needs the whole tensor"
                )
            if group["capturable"]:
                raise ValueError("capturable=True: sparse gradients cannot be captured in a graph")
            if group["fused"]:
                raise ValueError("fused=True: sparse gradients have their own path; leave fused=None")
            entry = self.state[p]
            if len(entry) == 0:
                entry.update(state.create(p, group, self.method.rule))
            entry["step"] += 1
            g = p.grad
            assert g is not None
            if scale is not None:
                g = g / scale.to(g.device)
            operators.row_step(p, g, entry, self.method, _floats(group), self._place(p))

    def _look_for_sleepers(
        self, group: dict[str, Any], params: list[Tensor], vs: list[Tensor], times: list[float]
    ) -> list[bool]:
        """Which parameters still hold a v of exactly 0, and so need the guard against late wakers.

        Looked up after the first step and at powers of two, and only for those that still held one: v never returns
        to 0, so an ordinary net pays for one look.
        """
        if not group["wake"] or not vs:
            return [False] * len(params)
        found = []
        for p, v, time in zip(params, vs, times, strict=True):
            sleeps = self._guarded.get(p)
            if time <= 1:
                sleeps = False  # k_1 = 1 wakes everything
            elif sleeps is None or (sleeps and _power_of_two(int(time) - 1)):
                sleeps = self._guarded[p] = bool((state.local(v) == 0).any())
            found.append(sleeps)
        return found

    def _update_fused(self, group: dict[str, Any], taken: list[list[Tensor]], n: Any) -> list[int]:
        """Step what torch's CPU kernel can serve; return the positions that it cannot."""
        everything = list(range(len(taken[0])))
        reason = fused_cpu.impossible(self.method.rule, n.p, n.clip, self._project is not None)
        if reason is None and taken[5]:
            reason = "torch's CPU kernel keeps no compensation"
        if reason is not None:
            if group["fused"]:
                raise ValueError(f"fused=True: {reason}; leave fused=None to take the fastest path there is")
            return everything
        if n.k < fused_cpu.LEAST_GAIN:
            return everything
        real = [[_plain(t) for t in items] for items in (taken[0], taken[1], taken[2], taken[3], taken[4])]
        real[1] = [_plain(state.local_gradient(p, g)) for p, g in zip(taken[0], taken[1], strict=True)]
        left = []
        for i in everything:
            reason = fused_cpu.unsuitable(real[0][i], real[1][i], real[2][i], real[3][i])
            if reason is not None:
                left.append(i)
                if group["fused"]:
                    self._warn_once(f"fused=True: a parameter takes the foreach path, because {reason}")
        keep = [i for i in everything if i not in left] if left else everything
        if keep:
            real = [[items[i] for i in keep] if items else items for items in real] if left else real
            fused_cpu.update(*real, n, maximize=group["maximize"])
        return left

    def _warn_once(self, message: str) -> None:
        said = self.__dict__.setdefault("_said", set())
        if message not in said:
            said.add(message)
            warnings.warn(message, stacklevel=6)

    def _update(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        ms: list[Tensor],
        vs: list[Tensor],
        tops: list[Tensor],
        compensations: list[Tensor],
        windows: list[Tensor],
        steps: list[Tensor],
        n: Any,
        wake: Any,
    ) -> None:
        """The foreach form on local, real-valued parts."""
        maximize = group["maximize"]
        rounding = precision.Rounding(
            group["rounding"],
            group["seed"],
            [self._place(p) for p in params] if _rounds(params, ms, vs) else (),
            [state.first_element(p, group["rounding"]) for p in params],
            steps,
        )
        project = self._project
        if project is not None and any(state.local(p) is not p for p in params):
            raise ValueError(
                "project: a sharded DTensor holds a part of the tensor; project on the full tensor"
            )
        grads = [state.local_gradient(p, g) for p, g in zip(params, grads, strict=True)]
        xs, gs, ms, vs, tops = ([_plain(t) for t in items] for items in (params, grads, ms, vs, tops))
        olds = None
        if windows:
            if maximize:
                gs, maximize = list(torch._foreach_neg(gs)), False
            if group["weight_decay"] and group["decay"] == "l2":
                gs = list(torch._foreach_add(gs, xs, alpha=group["weight_decay"]))
                n = n._replace(l2=0.0)
            windows = [_plain(w) for w in windows]
            slots = [
                ((t - 1) % group["window"]).long().reshape(1).to(w.device)
                for t, w in zip(steps, windows, strict=True)
            ]
            olds = [w.index_select(0, slot)[0] for w, slot in zip(windows, slots, strict=True)]
            for w, slot, g in zip(windows, slots, gs, strict=True):
                w.index_copy_(0, slot, g.to(w.dtype).unsqueeze(0))
        precision.update(
            xs,
            gs,
            ms,
            vs,
            tops,
            compensations,
            n,
            rounding,
            maximize=maximize,
            olds=olds,
            wake=wake if group["wake"] and vs else (),
            project=project,
        )


_ONE = torch.tensor(1.0, dtype=torch.float64)


def _kind(method: Method) -> str:
    return "none" if method.rule.memory is None else method.rule.memory.kind


def _is_double(p: Tensor) -> bool:
    return p.dtype in (torch.float64, torch.complex128)


def _plain(t: Tensor) -> Tensor:
    """This process's part, complex numbers as pairs of reals."""
    t = state.local(t)
    return torch.view_as_real(t) if t.is_complex() else t


def _rounds(params: list[Tensor], ms: list[Tensor], vs: list[Tensor]) -> bool:
    return any(some and some[0].dtype in state.LOW for some in (params, ms, vs))


def _power_of_two(t: int) -> bool:
    return t & (t - 1) == 0


def _traced(group: dict[str, Any], time: Tensor) -> dict[str, Any]:
    """The group with lr and b1 as tensors: a compiled step then serves every value that a scheduler writes."""
    one = time.new_ones(())
    return {**group, "lr": one * group["lr"], "betas": (one * group["betas"][0], group["betas"][1])}


def _floats(group: dict[str, Any]) -> dict[str, Any]:
    """The group with tensor hyper-parameters read to the host, once a step."""
    read = {
        k: group[k].item()
        for k in ("lr", "eps", "weight_decay", "reference_lr")
        if isinstance(group[k], Tensor)
    }
    betas = tuple(b.item() if isinstance(b, Tensor) else b for b in group["betas"])
    return {**group, **read, "betas": betas}
