"""One optimizer for every method: groups, state, and the outline of a step. The mathematics is elsewhere.

A differentiable step takes `operators`, a compiled one the foreach form (`dispatch`); for any other, `plan.py` chooses
who computes it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from adaxopt.torch import (
    checkpoint,
    dispatch,
    groups,
    hyper,
    operators,
    options,
    private,
    refusals,
    state,
    wake_guard,
)
from adaxopt.torch.foreach import Project
from adaxopt.torch.plan import Plan
from adaxopt.zoo import Method


def _graph_break_where_compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Run a step without gradients, or with them where it is differentiable.

    Compiled, the step begins a graph of its own: only so does the compiler see that parameters change in place.
    """

    @functools.wraps(step)
    def wrapped(self: Engine, closure: Callable[[], Any] | None = None) -> Any:
        before = torch.is_grad_enabled()
        try:
            private.set_grad_enabled(self.defaults["differentiable"])
            if torch.compiler.is_compiling():
                private.graph_break()
            return step(self, closure)
        finally:
            if torch.compiler.is_compiling():
                private.graph_break()
            private.set_grad_enabled(before)

    return wrapped


class Engine(Optimizer):
    """The engine behind every public class: a class gives it a signature and a method, nothing else."""

    method: ClassVar[Method]

    def __new__(cls, *args: Any, **given: Any) -> Any:
        """Refuse an unknown argument with a line that says what to write; Python's own error only names it."""
        groups.refuse_unknown(cls.__name__, given, groups.arguments(cls) or given)
        return super().__new__(cls)

    def __init__(self, params: ParamsT, given: dict[str, Any], project: Project | None = None) -> None:
        if project is not None and not callable(project):
            raise TypeError(f"project={project!r}: must be Box, Ball or a callable (y, d) -> x")
        defaults = groups.construct(self, params, given)
        self._project = project
        self._growth: dict[int, Any] = {}  # every group's b2 when it was last checked
        self._forget_caches()
        super().__init__(params, defaults)
        self._announce_scaling()

    def __repr__(self) -> str:
        return groups.described(self)

    # -- groups and state ---------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; what is not given is the optimizer's default."""
        if isinstance(param_group, dict):
            groups.prepare(self, param_group)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group.setdefault("reference_lr", groups.fixed(group["lr"]))
        self._growth[id(group)] = group["betas"][1]
        self._forget_caches()
        self._announce_scaling()

    def _forget_caches(self) -> None:
        self._inactive: dict[Tensor, wake_guard.Inactive] = {}
        self._plans: dict[int, Plan] = {}
        self._places: dict[Tensor, int] = {}
        self._singles: dict[Tensor, dict[str, Any]] = {}

    def _announce_scaling(self) -> None:
        """GradScaler hands over its scale only to a step that was asked to be fused, as with torch's optimizers."""
        self._step_supports_amp_scaling = any(group.get("fused") for group in self.param_groups)

    def _place(self, p: Tensor) -> int:
        """The parameter's position in the whole optimizer, which stochastic rounding draws from.

        It must not depend on the number of processes: under ZeroRedundancyOptimizer this optimizer holds a part.
        """
        if p not in self._places:
            every = (q for group in private.whole_param_groups(self) for q in group["params"])
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
            group["reference_lr"] = groups.fixed(group.get("reference_lr", group["lr"]))
            for p in group["params"]:
                if self.state.get(p):
                    self.state[p]["step"] = self.state[p]["step"].to(state.step_device(p, group))
        self._growth = {id(group): group["betas"][1] for group in self.param_groups}
        self._announce_scaling()

    @private.disable_dynamo
    def state_dict(self) -> dict[str, Any]:
        """As of any optimizer; `state_dtype` by name, because torch's checkpoint functions take no dtype in a group."""
        saved = super().state_dict()
        for group in saved["param_groups"]:
            group["state_dtype"] = options.dtype_name(options.dtype_of(group["state_dtype"]))
        return saved

    @private.disable_dynamo
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave. State keeps the dtype it was saved in; nothing is changed if anything is wrong.

        A checkpoint of another method is refused: its options and its second moment mean something else. `AdamW` and
        `Adam` also read checkpoints of the torch optimizer of the same name. For AdaX, AdaXW and Padax,
        `load_adamw_state_dict` converts checkpoints of torch's AdamW, and `load_released_state_dict` those of the
        released AdaX code.
        """
        checkpoint.load(self, state_dict)

    def restart_memory(self) -> None:
        """Set every parameter's time, m and v to 0, as for fine-tuning: the next gradient's square is the new v.

        An AdaX loaded after 500,000 steps has a memory that no longer moves. m begins anew too: beside a v of new
        gradients, the m of an earlier spike would make a step far larger than lr.
        """
        for entry in self.state.values():
            for key in ("step", "row_step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "window"):
                if key in entry and entry[key].requires_grad:
                    # a differentiable step's graph keeps the old one
                    entry[key] = torch.zeros_like(entry[key])
                elif key in entry:
                    entry[key].zero_()
        self._inactive.clear()

    def stats(self) -> list[dict[str, float]]:
        """What the optimizer is doing, per group: see `adaxopt.torch.stats.stats`."""
        from adaxopt.torch.stats import stats

        return stats(self)

    # -- the step -----------------------------------------------------------------------------------------------

    @private.lightly_hooked
    @_graph_break_where_compiled
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step. `closure`, where given, re-evaluates the model and returns the loss."""
        compiling = torch.compiler.is_compiling()
        if not compiling:
            self._check_capture()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if not compiling:
            if not self.state and private.asks_for_state_only():
                self._create_state()
                return loss
            for group in self.param_groups:
                if group["betas"][1] is not self._growth.get(id(group)):
                    groups.watch_betas(self, group)
            self._step_eagerly(self.param_groups)
            return loss
        for group in self.param_groups:
            self._step_compiled(group)
        return loss

    def _step_compiled(self, group: dict[str, Any]) -> None:
        if group["differentiable"]:
            raise ValueError("differentiable=True: a compiled step has no derivative; compile without it")
        if group["state_dtype"] is torch.uint8:
            raise ValueError("state_dtype=torch.uint8: 8-bit state cannot be stepped by a compiled step")
        if getattr(self, "found_inf", None) is not None or getattr(self, "grad_scale", None) is not None:
            raise ValueError(
                "a compiled step takes no scale: leave fused=None, and GradScaler unscales first"
            )
        dispatch.step_compiled(self, group)

    def _check_capture(self) -> None:
        """Refuse to be captured in a graph where that was not asked for, or would keep a number of the host."""
        if not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()):
            return
        here = [group for group in self.param_groups if group["capturable"]]
        on_gpu = any(group["params"] and group["params"][0].is_cuda for group in self.param_groups)
        if on_gpu and len(here) < len(self.param_groups):
            raise RuntimeError(
                f"CUDA graph capture of {type(self).__name__}.step: needs capturable=True in every group"
            )
        for group in here:
            numbers = zip(("lr", "betas[0]", "betas[1]"), (group["lr"], *group["betas"]), strict=True)
            # a float says by being one that it stays; a tensor is meant to change
            for name, number in numbers:
                if isinstance(number, Tensor) and number.is_cpu:
                    raise RuntimeError(
                        f"CUDA graph capture with {name} as a tensor on the CPU: the graph keeps its value of now; "
                        "put it on the parameters' device, or give a float if it is never to change"
                    )

    def _create_state(self) -> None:
        """Create the state of every parameter that has a gradient, and count no step."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p].update(state.create(p, group, self.method.rule))

    def step_parameter(self, p: Tensor) -> None:
        """Step one parameter alone (its own count goes on by one): for steps inside the backward pass."""
        self._check_capture()
        for group in self.param_groups:
            if any(q is p for q in group["params"]):
                groups.watch_betas(self, group)
                alone = self._singles.setdefault(p, {})  # the same object every time: a plan is kept for it
                alone.update(group)
                alone["params"] = [p]
                with torch.no_grad():
                    self._step_eagerly([alone])
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
        kept, moments = state.kept(rule), dict(zip(state.STATE, (ms, vs, tops), strict=False))
        for p in group["params"] if among is None else among:
            g = p.grad
            if g is None:
                continue
            entry = state.ready(self, group, p)
            if g.is_sparse or "row_step" in entry:
                raise ValueError(
                    "sparse gradients: their rows cannot be stepped in a graph or a compiled step"
                )
            params.append(p)
            grads.append(g)
            steps.append(entry["step"])
            for name in kept:
                moments[name].append(entry[name])
            if group["rounding"] in ("kahan", "24bit"):  # where there is none, the step holds its place
                compensations.append(entry.get("compensation", entry["step"]))
            if rule.mean == "window":
                windows.append(entry["window"])

    def _step_differentiable(self, group: dict[str, Any]) -> None:
        for p in group["params"]:
            if p.grad is None:
                continue
            entry = state.ready(self, group, p)
            operators.differentiable_step(
                p, p.grad, entry, self.method, hyper.pointlike(group), self._project
            )

    @private.disable_dynamo
    def _step_eagerly(self, stepped: list[dict[str, Any]]) -> None:
        scale, found_inf = getattr(self, "grad_scale", None), getattr(self, "found_inf", None)
        plans = [self._known_plan(group, scale is not None) for group in stepped]
        for group, plan in zip(stepped, plans, strict=True):
            if group["differentiable"]:
                self._step_differentiable(group)
                continue
            known = plan
            if plan is None:
                alive = {id(g) for g in (*self.param_groups, *self._singles.values())}
                self._plans = {k: p for k, p in self._plans.items() if k in alive}
                plan = self._plans[id(group)] = Plan(self, group, scale is not None)
            plan.step(self, group, scale, found_inf)
            if known is None:
                wake_guard.forget(self._inactive, self.param_groups)

    def _known_plan(self, group: dict[str, Any], scaled: bool) -> Plan | None:
        """The group's plan if it holds, else None. Raises for what cannot be done, before any group is stepped."""
        if group["decay"] == "fully_decoupled":
            options.check_reference(group)
        if isinstance(group["state_dtype"], str):  # by ZeRO, from a checkpoint
            group["state_dtype"] = options.dtype_of(group["state_dtype"])
        if group["differentiable"]:
            refusals.refuse_options(self, group, group["params"])
            return None
        plan = self._plans.get(id(group))
        if plan is not None and not plan.holds(self, group, scaled):
            plan = None
        if plan is None or not plan.usual:
            refusals.refuse(self, group, group["params"])
        return plan

    def _warn_once(self, message: str) -> None:
        said = self.__dict__.setdefault("_said", set())
        if message not in said:
            said.add(message)
            warnings.warn(message, stacklevel=groups.outside())
