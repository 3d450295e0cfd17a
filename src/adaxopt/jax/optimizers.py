"""The public transformations: their signatures, and the optax chain that each one returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from adaxopt.bounds import number, own
from adaxopt.checks import EpsPlacement, check, settle
from adaxopt.jax.transform import ADVICE, checkable, direction, narrowed, widened
from adaxopt.memories import Memory
from adaxopt.suggestions import refuse_unknown, suggests
from adaxopt.zoo import Decay, Method, method

Schedule = float | Any
"""A number, or an optax schedule."""
Scalar = float | Any
"""A number, or an array under `optax.inject_hyperparams`; not a schedule."""
Mask = Any | Callable[[Any], Any] | None

_SHARED = """
    Args:
        learning_rate: a number or an optax schedule of the number of completed steps (so may `weight_decay` be; use
            `optax.inject_hyperparams` for a schedule of another hyper-parameter).
        b1: decay rate of the mean m, as Adam's b1.
        b2: a *growth rate*, not Adam's decay rate. Over T steps, b2*T determines the behaviour. With None,
            `total_steps` or `memory` sets b2, else it is the paper's 1e-4.
        total_steps: the number of updates T of the whole run, a number; sets b2 = 3/T. Under `optax.MultiSteps`, count
            the real updates, not the mini-steps. Cannot be combined with b2.
        memory: another gain k_t in place of AdaX's, such as `adaxopt.LogTime(8)`. Cannot be combined with b2.
        eps: added to v**p before v is normalised, as Algorithm 3 does (`eps_placement="paper"`: eps/sqrt(b2) at the
            first step, then vanishing); `"plain"` adds it after, as optax's Adam does.
        weight_decay, decay, mask: `"decoupled"` x <- x - lr*wd*x; `"l2"` g <- g + wd*x; `"fully_decoupled"`
            x <- x - wd*(lr/reference_lr)*x. `mask`, a tree or a function of the parameters, selects the leaves that
            decay.
        mu_dtype, nu_dtype: dtypes of m and v. None is float64 for float64 parameters, else float32. 16-bit state is
            rounded stochastically, with random bits from `seed`. v cannot be float16, in which the squares of small
            gradients underflow. An update has the dtype of its parameter.
        wake: where v is exactly 0, the first gradient's square gets the weight 1. Without it, a coordinate whose first
            gradient comes at step t moves by (1-b1)/sqrt(k_t) * lr. False reproduces the paper. A
            memory that freezes has this guard also with False.
        clip_update: upper bound on |m/(v**p + eps)|, or None.
        cautious: leave out updates whose sign is not the gradient's and scale the others up (see `adaxopt.AdaXW`).
        reference_lr: the lr that "fully_decoupled" divides by; with None, the lr of the first step.
"""


@suggests(ADVICE)
def scale_by_adax(
    b1: Scalar = 0.9,
    b2: Scalar | None = None,
    eps: Scalar = 1e-12,
    p: float = 0.5,
    mu_dtype: Any = None,
    nu_dtype: Any = None,
    *,
    total_steps: Scalar | None = None,
    memory: Memory | None = None,
    eps_placement: EpsPlacement = "paper",
    wake: bool = True,
    clip_update: float | None = None,
    cautious: bool = False,
    seed: int = 0,
) -> optax.GradientTransformation:
    """Scale gradients to AdaX's direction m/(v**p + eps_t), for `optax.chain` (Li et al. 2020, Algorithm 3).

    p = 1/8 gives Padax's direction.

        m <- b1*m + (1-b1)*g
        v <- v + k_t*(g*g - v),       k_t = b2/((1+b2)^t - 1)

    >>> optimizer = optax.chain(optax.clip_by_global_norm(1.0), scale_by_adax(), optax.scale_by_learning_rate(1e-3))
    """
    row = method("adax")
    options = {
        **row.defaults,
        **settle(row, (b1, b2), memory, total_steps, name="b2"),
        "eps": eps,
        "p": p,
        "eps_placement": eps_placement,
        "wake": wake,
        "clip_update": clip_update,
        "cautious": cautious,
    }
    check(checkable(options), row.rule, stacklevel=4)
    return narrowed(direction(row, options, mu_dtype, nu_dtype, seed))


@suggests(ADVICE)
def adax(
    learning_rate: Schedule = 1.5e-3,
    b1: Scalar = 0.9,
    b2: Scalar | None = None,
    eps: Scalar = 1e-12,
    weight_decay: Schedule = 0.0,
    mask: Mask = None,
    mu_dtype: Any = None,
    nu_dtype: Any = None,
    *,
    total_steps: Scalar | None = None,
    memory: Memory | None = None,
    decay: Decay = "l2",
    reference_lr: float | None = None,
    eps_placement: EpsPlacement = "paper",
    wake: bool = True,
    clip_update: float | None = None,
    cautious: bool = False,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    return _from_arguments("adax", locals())


@suggests(ADVICE)
def adaxw(
    learning_rate: Schedule = 5e-3,
    b1: Scalar = 0.9,
    b2: Scalar | None = None,
    eps: Scalar = 1e-12,
    weight_decay: Schedule = 5e-2,
    mask: Mask = None,
    mu_dtype: Any = None,
    nu_dtype: Any = None,
    *,
    total_steps: Scalar | None = None,
    memory: Memory | None = None,
    decay: Decay = "decoupled",
    reference_lr: float | None = None,
    eps_placement: EpsPlacement = "paper",
    wake: bool = True,
    clip_update: float | None = None,
    cautious: bool = False,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    return _from_arguments("adaxw", locals())


@suggests(ADVICE)
def padax(
    learning_rate: Schedule = 0.1,
    b1: Scalar = 0.9,
    b2: Scalar | None = None,
    eps: Scalar = 1e-12,
    weight_decay: Schedule = 5e-4,
    p: float = 1 / 8,
    mask: Mask = None,
    mu_dtype: Any = None,
    nu_dtype: Any = None,
    *,
    total_steps: Scalar | None = None,
    memory: Memory | None = None,
    decay: Decay = "l2",
    reference_lr: float | None = None,
    eps_placement: EpsPlacement = "paper",
    wake: bool = True,
    clip_update: float | None = None,
    cautious: bool = False,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    return _from_arguments("padax", locals())


adax.__doc__ = f"""AdaX with L2 regularisation (Li et al. 2020, Algorithm 3).

        g <- g + wd*x
        x <- x - lr*m/(sqrt(v) + eps_t)

    with m and v as in `scale_by_adax`. The defaults are those of `adaxopt.AdaX`.

    >>> import jax.numpy as jnp
    >>> opt = adax(0.1); x = jnp.array([1.0])
    >>> u, state = opt.update(2 * x, opt.init(x), x); round(optax.apply_updates(x, u).item(), 6)
    0.99
{_SHARED}"""
adaxw.__doc__ = f"""AdaX with decoupled weight decay: the paper's AdaX-W (Li et al. 2020, Algorithm 3).

        x <- x - lr*m/(sqrt(v) + eps_t) - lr*wd*x

    with m and v as in `scale_by_adax`. Defaults are the paper's for its convolutional nets. When you switch from AdamW
    on a transformer, start from AdamW's lr.

    >>> import jax.numpy as jnp
    >>> opt = adaxw(0.1, weight_decay=0.0); x = jnp.array([1.0])
    >>> u, state = opt.update(2 * x, opt.init(x), x); round(optax.apply_updates(x, u).item(), 6)
    0.99
{_SHARED}"""
padax.__doc__ = f"""AdaX with a partial power of the second moment (Li et al. 2020, section 5.3).

        x <- x - lr*m/(v**p + eps_t),      p = 1/8

    The defaults are those of `adaxopt.Padax`.
{_SHARED}"""


@suggests(ADVICE)
def create(
    name: str,
    learning_rate: Schedule | None = None,
    mask: Mask = None,
    *,
    b1: Scalar | None = None,
    b2: Scalar | None = None,
    betas: tuple[Scalar, Scalar] | None = None,
    momentum: Scalar | None = None,
    alpha: Scalar | None = None,
    c: float | None = None,
    eps: Scalar | None = None,
    weight_decay: Schedule | None = None,
    total_steps: Scalar | None = None,
    memory: Memory | None = None,
    decay: str | None = None,
    reference_lr: float | None = None,
    p: float | None = None,
    window: int | None = None,
    correct: bool | None = None,
    eps_placement: str | None = None,
    wake: bool | None = None,
    clip_update: float | None = None,
    cautious: bool | None = None,
    mu_dtype: Any = None,
    nu_dtype: Any = None,
    seed: int | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Create a method by name (docs/method.md lists the names).

    Options are those of `adaxw` and the method's own: `betas` in place of b1 and b2, `momentum`, `alpha` or `c` for one
    of them, `p`, `window`, `correct`. None selects the method's default. An option that the method does not have raises
    TypeError.

    >>> optimizer = create("nosadam", 1e-3, c=0.1, weight_decay=1e-4)
    """
    given = {key: value for key, value in locals().items() if value is not None and key != "name"}
    row = method(name)
    lr = given.pop("learning_rate", row.defaults["lr"])
    return _chain(row, lr, given.pop("mask", None), given, stacklevel=5)


_OWN = ("b1", "b2", "learning_rate", "mask", "mu_dtype", "nu_dtype", "reference_lr", "seed")


def _from_arguments(name: str, arguments: dict[str, Any]) -> optax.GradientTransformationExtraArgs:
    return _chain(
        method(name), arguments.pop("learning_rate"), arguments.pop("mask"), arguments, stacklevel=6
    )


def _chain(
    row: Method, lr: Schedule, mask: Mask, given: dict[str, Any], stacklevel: int
) -> optax.GradientTransformationExtraArgs:
    given = dict(given)
    dtypes = {key: given.pop(key, None) for key in ("mu_dtype", "nu_dtype")}
    seed = given.pop("seed", 0)
    reference = given.pop("reference_lr", None)
    betas = _betas(row, given)
    refuse_unknown(row.name, given, set(row.defaults) - {"lr"}, {*row.names, *_OWN}, advice=ADVICE)
    settled = settle(row, betas, given.get("memory"), given.get("total_steps"), name="b2")
    options = {**row.defaults, **given, **settled, "lr": 0.0 if callable(lr) else lr}
    check(checkable(options), row.rule, lr="learning_rate", stacklevel=stacklevel)
    weight, decay = options["weight_decay"], options["decay"]
    parts = [direction(row, options, dtypes["mu_dtype"], dtypes["nu_dtype"], seed)]
    decays = not (isinstance(weight, (int, float)) and weight == 0)
    if decays and decay == "fully_decoupled":
        weight = _measured(weight, _reference(lr, reference))
    # the identity keeps the structure of the state, so that a run can resume without decay (unless that is a schedule)
    parts.insert(0 if decay == "l2" else 1, _decay(weight, mask) if decays else optax.identity())
    return narrowed(optax.chain(*parts, optax.scale_by_learning_rate(lr)))


def _betas(row: Method, given: dict[str, Any]) -> Any:
    """Remove (b1, b2) from the options: the pair `betas`, or a name for each."""
    names = {"b1": 0, "b2": 1, **row.names}
    words = {word: given.pop(word) for word in ("betas", *names) if word in given}
    found = [row.defaults["betas"][0], None]
    for word, value in words.items():
        for other in words:
            if other != word and ("betas" in (word, other) or names[other] == names[word]):
                raise ValueError(f"{word}={value!r}, {other}={words[other]!r}: give one of the two")
        if word != "betas":
            found[names[word]] = value
    return words.get("betas", found)


def _decay(weight: Schedule, mask: Mask) -> optax.GradientTransformation:
    """`optax.add_decayed_weights` in the dtype of the step. `weight` may be a schedule, which the oldest supported
    optax does not accept there."""

    def init(params: Any) -> Any:
        return (
            optax.ScaleByScheduleState(jnp.zeros([], jnp.int32)) if callable(weight) else optax.EmptyState()
        )

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        if params is None:
            raise ValueError("weight_decay: needs the parameters; call update(gradients, state, params)")
        chosen = mask(params) if callable(mask) else mask
        now = optax.add_decayed_weights(weight(state.count) if callable(weight) else weight, chosen)
        updates, _ = now.update(widened(updates), now.init(updates), widened(params))
        if callable(weight):
            state = optax.ScaleByScheduleState(optax.safe_increment(state.count))
        return updates, state

    return optax.GradientTransformation(init, update)


def _measured(weight: Schedule, reference: Schedule) -> Schedule:
    return (lambda count: weight(count) / reference) if callable(weight) else weight / reference


def _reference(lr: Schedule, given: float | None) -> Schedule:
    if given is not None:
        given = own(given)
        number("reference_lr", given, (jax.Array,), positive=True)
    first = given if given is not None else lr(0) if callable(lr) else lr
    if given is None and isinstance(lr, jax.Array):
        raise ValueError(
            "reference_lr=None: fully decoupled decay is measured against the first lr, and an array (vmap, "
            "inject_hyperparams) may not be the first; give reference_lr as a number"
        )
    if not isinstance(first, jax.core.Tracer) and not first > 0:
        raise ValueError(
            f"reference_lr={float(first)!r}: fully decoupled decay is measured against it and it must be > 0; give "
            "reference_lr where a schedule begins at 0"
        )
    return first
