"""AdaX, AdaXW and Padax as Keras 3 optimizers, on every backend (torch, JAX, TensorFlow).

>>> import keras
>>> from adaxopt.keras import AdaXW
>>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
>>> model.compile(AdaXW(1e-3, weight_decay=0.1), loss="mse")

The update rule and its coefficients are those of `adaxopt.rule`, computed with `keras.ops`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from adaxopt import memories
from adaxopt.bounds import own, plain
from adaxopt.checks import EpsPlacement, check, settle
from adaxopt.extras import need
from adaxopt.memories import Memory
from adaxopt.rule import step
from adaxopt.suggestions import TORCHS, refuse_unknown
from adaxopt.zoo import METHODS, Decay, Method

need("adaxopt.keras", "adaxopt[keras]", keras="3.12")

import keras  # noqa: E402
from keras import ops  # noqa: E402

__all__ = ["AdaX", "AdaXW", "Padax"]


ADVICE = {
    **TORCHS,
    "momentum": "it is beta_1",
    "betas": "write beta_1=... and beta_2=...",
    "statedtype": "m and v are float32, and float64 for float64 variables; leave it out",
}
"""Advice for torch's names. Keys are in lower case, without underscores."""
BASE = {
    name
    for kind in keras.optimizers.Optimizer.__mro__
    for name in inspect.signature(kind.__init__).parameters
    if name not in ("self", "args", "kwargs")
}
"""The arguments of Keras's base class."""


class _xp:
    """keras.ops under the names that `adaxopt.rule` and `adaxopt.memory` use."""

    exp = staticmethod(ops.exp)
    expm1 = staticmethod(ops.expm1)
    log = staticmethod(ops.log)
    log1p = staticmethod(ops.log1p)
    sqrt = staticmethod(ops.sqrt)
    maximum = staticmethod(ops.maximum)
    ones_like = staticmethod(ops.ones_like)

    @staticmethod
    def mean(x: Any) -> Any:
        """Not `ops.mean`, which computes in float32 on torch."""
        return ops.sum(x) / max(math.prod(x.shape), 1)

    @staticmethod
    def where(condition: Any, yes: Any, no: Any) -> Any:
        """`ops.where` in which a Python float takes the dtype of the other argument."""
        if isinstance(yes, float):
            yes = ops.zeros_like(no) + yes
        if isinstance(no, float):
            no = ops.zeros_like(yes) + no
        return ops.where(condition, yes, no)

    @staticmethod
    def clip(x: Any, min: Any = None, max: Any = None) -> Any:
        """Clip without losing float64: `ops.minimum` on torch and `ops.cast` of a number on TensorFlow give float32."""
        if min is not None:
            low = ops.zeros_like(x) + min
            x = ops.where(x < low, low, x)
        if max is not None:
            high = ops.zeros_like(x) + max
            x = ops.where(x > high, high, x)
        return x


class _Method(keras.optimizers.Optimizer):
    """Base of the public classes, which define only a signature and a method."""

    method: ClassVar[Method]

    def __init__(self, given: dict[str, Any]) -> None:
        base = given.pop("base")
        refuse_unknown(type(self).__name__, base, BASE, given, advice=ADVICE)
        given = {key: own(value) for key, value in given.items()}
        lr, reference, wd = (given.pop(k) for k in ("learning_rate", "reference_lr", "weight_decay"))
        lr = float(lr) if plain(lr) else lr
        betas = given.pop("beta_1"), given.pop("beta_2")
        given.update(settle(self.method, betas, given["memory"], given["total_steps"], name="beta_2"))
        options = {
            **self.method.defaults,
            "betas": given.pop("betas"),
            "eps": given.pop("epsilon"),
            **given,
            "weight_decay": wd or 0.0,
        }
        check(
            {**options, "lr": lr if isinstance(lr, float) else 0.0},
            self.method.rule,
            names=("beta_1", "beta_2"),
            lr="learning_rate",
            eps="epsilon",
            arrays=(),
            stacklevel=4,
        )
        with _wide_floatx():
            super().__init__(lr, weight_decay=wd, **base)
            self._own, self._written = options, tuple(given)
            self.reference_lr = reference
            if options["decay"] == "fully_decoupled" and reference is None:
                self.reference_lr = _first(lr)
        if wd:
            self._check_reference()

    def _check_reference(self) -> None:
        given = self.reference_lr
        if self._own["decay"] == "fully_decoupled" and not (plain(given) and given > 0):
            raise ValueError(
                f"reference_lr={given!r}: fully decoupled decay is measured against it and it must be > 0; give "
                "reference_lr where a schedule begins at 0 or is a callable"
            )

    def _get_current_learning_rate(self) -> Any:
        with _wide_floatx():  # schedules compute in floatx: 0.001 is 0.00100040 in float16
            return super()._get_current_learning_rate()

    def build(self, variables: Any) -> None:
        """Create m and v for every variable: float32 for 16-bit variables, else the variable's own dtype."""
        if self.built:
            return
        super().build(variables)
        self._momentums = [self._zeros(x, "momentum") for x in variables]
        self._velocities = [self._zeros(x, "velocity") for x in variables]

    def _zeros(self, variable: Any, name: str) -> Any:
        if getattr(variable, "overwrite_with_gradient", False):  # float8 scales: not updated by the rule
            return None
        path = getattr(variable, "path", variable.name).replace("/", "_").replace(":", "_")
        return self.add_variable(
            shape=variable.shape,
            dtype=_work(variable),
            layout=getattr(variable, "_layout", None),
            name=f"{path}_{name}",
        )

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable, including weight decay."""
        place = self._get_variable_index(variable)
        m, v = self._momentums[place], self._velocities[place]
        work = _work(variable)
        weight_decay = (self.weight_decay or 0.0) if self._use_weight_decay(variable) else 0.0
        if weight_decay:  # weight_decay may have been set after construction
            self._check_reference()
        options = {
            **self._own,
            "lr": ops.cast(learning_rate, work),
            "weight_decay": weight_decay,
            "reference_lr": self.reference_lr,
            "dtype": work,
        }
        n = self.method.numbers(ops.cast(self.iterations, work) + 1, options, _xp)
        x, new_m, new_v, _, _ = step(
            ops.cast(variable, work),
            ops.cast(_dense(gradient, variable), work),
            ops.convert_to_tensor(m),
            ops.convert_to_tensor(v),
            n,
            wake=memories.guarded(self._own),
            xp=_xp,
        )
        self.assign(m, new_m)
        self.assign(v, new_v)
        self.assign(variable, ops.cast(x, variable.dtype))

    def _apply_weight_decay(self, variables: Any) -> None:
        """Do nothing: `update_step` applies weight decay, and respects `exclude_from_weight_decay`."""

    def get_config(self) -> dict[str, Any]:
        """The arguments that rebuild this optimizer: those of Keras's base class and those of the method."""
        return {
            **super().get_config(),
            "beta_1": self._own["betas"][0],
            "beta_2": self._own["betas"][1],
            "epsilon": self._own["eps"],
            **{key: self._own[key] for key in self._written},
            "reference_lr": self.reference_lr,
        }


def _work(variable: Any) -> str:
    return "float64" if keras.backend.standardize_dtype(variable.dtype) == "float64" else "float32"


def _dense(gradient: Any, variable: Any) -> Any:
    """The gradient as a dense tensor: TensorFlow passes the gradient of an embedding as IndexedSlices."""
    if type(gradient).__name__ != "IndexedSlices":
        return gradient
    return ops.scatter(gradient.indices[:, None], gradient.values, variable.shape)


def _first(lr: Any) -> float | None:
    """The learning rate of the first step as a number, or None if it is given by a callable."""
    first = lr(0) if isinstance(lr, keras.optimizers.schedules.LearningRateSchedule) else lr
    return None if callable(first) else float(ops.convert_to_numpy(first))


@contextmanager
def _wide_floatx() -> Iterator[None]:
    """Set Keras's default dtype, in which learning rates are stored and computed, to float32 if it has 16 bits."""
    before = keras.config.floatx()
    if before not in ("float16", "bfloat16"):
        yield
        return
    keras.config.set_floatx("float32")
    try:
        yield
    finally:
        keras.config.set_floatx(before)


_SHARED = """
    Args:
        learning_rate: a float, a `keras.optimizers.schedules.LearningRateSchedule` or a callable.
        beta_1: decay rate of the mean m, as Adam's beta_1.
        beta_2: a *growth rate*, not Adam's decay rate. With None, `total_steps` or `memory` sets it, else it is the
            paper's 1e-4.
        total_steps: the number of steps T of the whole run; sets beta_2 = 3/T. Cannot be combined with beta_2.
        memory: another gain k_t in place of AdaX's, such as `adaxopt.LogTime(8)`. Cannot be combined with beta_2.
        epsilon: added to v**p before v is normalised, as Algorithm 3 does (`eps_placement="paper"`); `"plain"` adds it
            after.
        weight_decay, decay: `"decoupled"` x <- x - lr*wd*x; `"l2"` g <- g + wd*x; `"fully_decoupled"`
            x <- x - wd*(lr/reference_lr)*x. `exclude_from_weight_decay` is respected by each.
        wake: where v is exactly 0, the first gradient's square gets the weight 1. False reproduces the paper. A
            memory that freezes has this guard also with False.
        clip_update: upper bound on |m/(v**p + eps)|, or None.
        cautious: leave out updates whose sign is not the gradient's and scale the others up (see `adaxopt.AdaXW`).
        reference_lr: the lr that "fully_decoupled" divides by; with None, the first lr.
        base: arguments of `keras.optimizers.Optimizer` (clipnorm, global_clipnorm, use_ema,
            gradient_accumulation_steps, name, ...).
"""


@keras.saving.register_keras_serializable(package="adaxopt")
class AdaX(_Method):
    __doc__ = f"""AdaX with L2 regularisation (Li et al. 2020, Algorithm 3); see `adaxopt.AdaX`.

        m <- b1*m + (1-b1)*g
        v <- v + k_t*(g*g - v),       k_t = b2/((1+b2)^t - 1)
        x <- x - lr*m/(sqrt(v) + eps_t)
{_SHARED}"""
    method = METHODS["adax"]

    def __init__(
        self,
        learning_rate: Any = 1.5e-3,
        beta_1: float = 0.9,
        beta_2: float | None = None,
        epsilon: float = 1e-12,
        weight_decay: float | None = None,
        *,
        total_steps: float | None = None,
        memory: Memory | None = None,
        decay: Decay = "l2",
        eps_placement: EpsPlacement = "paper",
        wake: bool = True,
        clip_update: float | None = None,
        cautious: bool = False,
        reference_lr: float | None = None,
        **base: Any,
    ) -> None:
        super().__init__(_given(locals()))


@keras.saving.register_keras_serializable(package="adaxopt")
class AdaXW(_Method):
    __doc__ = f"""AdaX with decoupled weight decay: the paper's AdaX-W (Li et al. 2020, Algorithm 3).

        x <- x - lr*m/(sqrt(v) + eps_t) - lr*wd*x

    with m and v as in `AdaX`. Defaults are the paper's for its convolutional nets. When you switch from AdamW on a
    transformer, start from AdamW's lr.
{_SHARED}"""
    method = METHODS["adaxw"]

    def __init__(
        self,
        learning_rate: Any = 5e-3,
        beta_1: float = 0.9,
        beta_2: float | None = None,
        epsilon: float = 1e-12,
        weight_decay: float | None = 5e-2,
        *,
        total_steps: float | None = None,
        memory: Memory | None = None,
        decay: Decay = "decoupled",
        eps_placement: EpsPlacement = "paper",
        wake: bool = True,
        clip_update: float | None = None,
        cautious: bool = False,
        reference_lr: float | None = None,
        **base: Any,
    ) -> None:
        super().__init__(_given(locals()))


@keras.saving.register_keras_serializable(package="adaxopt")
class Padax(_Method):
    __doc__ = f"""AdaX with a partial power of the second moment (Li et al. 2020, section 5.3); see `adaxopt.Padax`.

        x <- x - lr*m/(v**p + eps_t),      p = 1/8
{_SHARED}"""
    method = METHODS["padax"]

    def __init__(
        self,
        learning_rate: Any = 0.1,
        beta_1: float = 0.9,
        beta_2: float | None = None,
        epsilon: float = 1e-12,
        weight_decay: float | None = 5e-4,
        p: float = 1 / 8,
        *,
        total_steps: float | None = None,
        memory: Memory | None = None,
        decay: Decay = "l2",
        eps_placement: EpsPlacement = "paper",
        wake: bool = True,
        clip_update: float | None = None,
        cautious: bool = False,
        reference_lr: float | None = None,
        **base: Any,
    ) -> None:
        super().__init__(_given(locals()))


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in arguments.items() if k not in ("self", "__class__")}
