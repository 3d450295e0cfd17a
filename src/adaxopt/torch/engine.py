"""The optimizer class behind every method: param groups, state, and the outline of a step.

A differentiable step uses `operators`, a compiled step the foreach form (`dispatch`). For any other step, `plan.py`
selects the backends.
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

from adaxopt.memories import Memory
from adaxopt.suggestions import refuse_unknown
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
from adaxopt.torch.plan import Plan
from adaxopt.torch.project import Project
from adaxopt.zoo import Method


def _graph_break_where_compiled(step: Callable[..., Any]) -> Callable[..., Any]:
    """Run a step with autograd disabled, or enabled if the optimizer is differentiable.

    Under torch.compile the step starts a new graph, so that the compiler sees that parameters change in place.
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
    """Base class of all optimizers. Subclasses define only a signature and a method."""

    method: ClassVar[Method]

    def __new__(cls, *args: Any, **given: Any) -> Any:
        """Raise TypeError for an unknown argument, with a suggestion; Python's own error only names the argument."""
        refuse_unknown(cls.__name__, given, groups.arguments(cls) or given, advice=groups.ADVICE)
        return super().__new__(cls)

    def __init__(self, params: ParamsT, given: dict[str, Any], project: Project | None = None) -> None:
        if project is not None and not callable(project):
            raise TypeError(f"project={project!r}: must be Box, Ball or a callable (y, d) -> x")
        defaults = groups.construct(self, params, given)
        self._project = project
        self._growth: dict[int, Any] = {}  # b2 of each group when it was last checked
        self._forget_caches()
        super().__init__(params, defaults)
        self._announce_scaling()

    def __repr__(self) -> str:
        return groups.described(self)

    # -- groups and state ---------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a param group. Options that are not given are the optimizer's defaults.

        `param_groups` gets a copy: the options of this optimizer are not written into the dict that was given, which
        may be used for another optimizer.
        """
        if isinstance(param_group, dict):
            param_group = groups.copied(param_group)
            groups.prepare(self, param_group)
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group.setdefault("reference_lr", groups.fixed(group["lr"]))
        self._growth[id(group)] = group["betas"][1]
        self._forget_caches()
        self._announce_scaling()

    CACHES = ("_inactive", "_plans", "_places", "_singles", "_growth")
    """Attributes that follow from the groups and the state, and are no part of a checkpoint."""

    def _forget_caches(self) -> None:
        self._inactive: dict[Tensor, wake_guard.Inactive] = {}
        self._plans: dict[int, Plan] = {}
        self._places: dict[Tensor, int] = {}
        self._singles: dict[Tensor, dict[str, Any]] = {}

    def _announce_scaling(self) -> None:
        """Accept GradScaler's scale in the step only if fused=True was requested, as torch's optimizers do, and no
        group is differentiable; else GradScaler unscales the gradients first."""
        plain = not any(group.get("differentiable") for group in self.param_groups)
        self._step_supports_amp_scaling = plain and any(group.get("fused") for group in self.param_groups)

    def _place(self, p: Tensor) -> int:
        """The parameter's index in the whole optimizer, an input of the random bits of stochastic rounding.

        It must not depend on the number of processes. Under ZeroRedundancyOptimizer this optimizer holds only some of
        the parameters.
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
            options.complete(group, self.defaults)
            group["reference_lr"] = groups.fixed(group.get("reference_lr", group["lr"]))
            for p in group["params"]:
                if self.state.get(p):
                    self.state[p]["step"] = self.state[p]["step"].to(state.step_device(p, group))
        self._growth = {id(group): group["betas"][1] for group in self.param_groups}
        self._announce_scaling()

    @private.disable_dynamo
    def state_dict(self) -> dict[str, Any]:
        """As `torch.optim.Optimizer.state_dict`. `state_dtype` is stored by name, because torch's checkpoint functions
        do not support dtypes in param groups. `format` shows whether there are step counts per row, because `dcp.load`
        drops them without an error if the new optimizer has none."""
        saved = super().state_dict()
        entries = saved.get("state", {})
        for group in saved.get("param_groups", ()):  # a hook may have changed the form
            if "state_dtype" in group:
                group["state_dtype"] = options.dtype_name(options.dtype_of(group["state_dtype"]))
            if any("row_step" in entries.get(name, ()) for name in group.get("params", ())):
                group["format"] = options.FORMAT_ROWS
        return saved

    @private.disable_dynamo
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a checkpoint made by `state_dict`. State keeps its saved dtype. On an error, nothing is changed.

        A checkpoint of another method raises ValueError, because its options and its second moment have other meanings.
        `AdamW` and `Adam` also read checkpoints of the torch optimizer of the same name. For AdaX, AdaXW and Padax,
        `load_adamw_state_dict` converts checkpoints of AdamW, and `load_released_state_dict` those of the
        released AdaX code.
        """
        checkpoint.load(self, state_dict)

    def restart_memory(self) -> None:
        """Reset the step count, m and v of every parameter to 0, for example before fine-tuning.

        The next squared gradient becomes the new v. The v of AdaX changes less and less (with b2 = 1e-4, after 500,000
        steps no more). m is reset too: with the m of an earlier spike and a v of new gradients, a step would be far
        larger than lr.
        """
        for entry in (entry for p, entry in self.state.items() if isinstance(p, Tensor)):
            for key in ("step", "row_step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "window"):
                if key in entry and entry[key].requires_grad:
                    # the graph of a differentiable step keeps the old tensor
                    entry[key] = torch.zeros_like(entry[key])
                elif key in entry:
                    entry[key].zero_()
        self._inactive.clear()

    def stats(self) -> list[dict[str, float]]:
        """Statistics of the state, one dict per group; see `adaxopt.torch.stats.stats`."""
        from adaxopt.torch.stats import stats

        return stats(self)

    # -- the step -----------------------------------------------------------------------------------------------

    @private.lightly_hooked
    @_graph_break_where_compiled
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Perform one step. `closure`, if given, re-evaluates the model and returns the loss."""
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
                "a compiled step does not support GradScaler's scale: leave fused=None, and GradScaler unscales first"
            )
        dispatch.step_compiled(self, group)

    def _check_capture(self) -> None:
        """Raise under CUDA graph capture without capturable=True, or with lr or betas as CPU tensors."""
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
            # a float is expected to stay constant; a tensor is expected to change
            for name, number in numbers:
                if isinstance(number, Tensor) and number.is_cpu:
                    raise RuntimeError(
                        f"CUDA graph capture with {name} as a tensor on the CPU: the graph keeps its current value; "
                        "put it on the parameters' device, or give a float if it never changes"
                    )

    def _create_state(self) -> None:
        """Create the state of every parameter that has a gradient, without counting a step."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.state[p].update(state.create(p, group, self.method.rule))

    def step_parameter(self, p: Tensor) -> None:
        """Step a single parameter, for steps inside the backward pass. Only its own step count advances."""
        self._check_capture()
        for group in self.param_groups:
            if any(q is p for q in group["params"]):
                groups.watch_betas(self, group)
                alone = self._singles.setdefault(p, {})  # the same dict at every call: its plan is reused
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
        v_maxes: list[Tensor],
        compensations: list[Tensor],
        windows: list[Tensor],
        steps: list[Tensor],
        among: list[Tensor] | None = None,
    ) -> None:
        """Append every parameter that has a dense gradient to the lists, and create missing state.

        torch.compile recognises this method by its name, and runs it instead of tracing it.
        """
        rule = self.method.rule
        kept, moments = state.kept(rule), dict(zip(state.STATE, (ms, vs, v_maxes), strict=False))
        for p in group["params"] if among is None else among:
            g = p.grad
            if g is None:
                continue
            entry = state.ready(self, group, p)
            if g.is_sparse or "row_step" in entry:
                raise ValueError(
                    "sparse gradients: rows cannot be stepped in a CUDA graph or by a compiled step"
                )
            params.append(p)
            grads.append(g)
            steps.append(entry["step"])
            for name in kept:
                moments[name].append(entry[name])
            if group["rounding"] in ("kahan", "24bit"):  # without a compensation, `step` is a placeholder
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
        """The group's plan if it is still valid, else None. Unsupported cases raise before any group is stepped."""
        if group["decay"] == "fully_decoupled":
            options.check_reference(group)
        if isinstance(group["state_dtype"], str):  # written by ZeroRedundancyOptimizer, from a checkpoint
            group["state_dtype"] = options.dtype_of(group["state_dtype"])
        if group["betas"][1] is None or isinstance(group.get("memory"), Memory):
            options.settle_copied(group, self.method)
        if group["differentiable"]:
            if scaled:
                raise ValueError(
                    "differentiable=True: a step does not support GradScaler's scale; create the optimizer with it, or "
                    "call scaler.unscale_(optimizer) first"
                )
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
