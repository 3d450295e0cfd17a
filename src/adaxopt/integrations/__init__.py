"""Registration with frameworks that look optimizers up by name. A framework is imported only by the call."""

from __future__ import annotations

from adaxopt.extras import need

__all__ = ["register_timm"]


def register_timm() -> None:
    """Register `adax`, `adaxw` and `padax` with timm (`create_optimizer_v2`, `--opt adaxw`).

        from adaxopt.integrations import register_timm
        register_timm()
        optimizer = timm.optim.create_optimizer_v2(model, "adaxw", lr=5e-3, weight_decay=5e-2)

    timm passes weight_decay=0 by default, and excludes biases and norms from weight decay. A second call has no
    effect.
    """
    need("adaxopt.integrations.register_timm", "timm", timm="1.0.12")
    from timm.optim import OptimInfo, list_optimizers
    from timm.optim._optim_factory import default_registry

    from adaxopt import AdaX, AdaXW, Padax

    known = set(list_optimizers())
    for cls in (AdaX, AdaXW, Padax):
        name = cls.__name__.lower()
        if name not in known:
            default_registry.register(
                OptimInfo(name=name, opt_class=cls, description=f"{cls.method.source}", has_betas=True)
            )
