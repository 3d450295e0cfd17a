"""AdaX and its relatives as optax transformations.

>>> import jax, jax.numpy as jnp, optax
>>> from adaxopt.jax import adaxw
>>> params = {"w": jnp.ones(3)}
>>> optimizer = adaxw(optax.cosine_decay_schedule(1e-3, 1000), weight_decay=0.1)
>>> state = optimizer.init(params)
>>> grads = jax.grad(lambda p: (p["w"] ** 2).sum())(params)
>>> updates, state = optimizer.update(grads, state, params)
>>> params = optax.apply_updates(params, updates)
"""

from adaxopt.extras import need

need("adaxopt.jax", "adaxopt[jax]", jax="0.6", optax="0.2.5")

from adaxopt.jax.optimizers import adax, adaxw, create, padax, scale_by_adax  # noqa: E402
from adaxopt.jax.transform import ScaleByMethodState, scale_by_method  # noqa: E402

__all__ = [
    "ScaleByMethodState",
    "adax",
    "adaxw",
    "create",
    "padax",
    "scale_by_adax",
    "scale_by_method",
]
