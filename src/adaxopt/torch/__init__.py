"""AdaX and its relatives as torch optimizers."""

from adaxopt.extras import need

need("adaxopt.torch", "adaxopt[torch]", torch="2.6")

from adaxopt.torch.adam import Adam, AdamW  # noqa: E402
from adaxopt.torch.convert import cast_state_dict, load_adamw_state_dict, load_released_state_dict  # noqa: E402
from adaxopt.torch.helpers import clip_grad_norm_, float32_weights, param_groups, step_in_backward  # noqa: E402
from adaxopt.torch.optimizers import AdaX, AdaXW, Padax, create  # noqa: E402
from adaxopt.torch.project import Ball, Box  # noqa: E402

__all__ = [
    "AdaX",
    "AdaXW",
    "Adam",
    "AdamW",
    "Ball",
    "Box",
    "Padax",
    "cast_state_dict",
    "clip_grad_norm_",
    "create",
    "float32_weights",
    "load_adamw_state_dict",
    "load_released_state_dict",
    "param_groups",
    "step_in_backward",
]
