"""AdaX and its relatives as torch optimizers."""

from adaxopt.torch.convert import load_adamw_state_dict, load_released_state_dict
from adaxopt.torch.helpers import clip_grad_norm_, param_groups, step_in_backward
from adaxopt.torch.optimizers import AdaX, AdaXW, Padax, create
from adaxopt.torch.project import Ball, Box

__all__ = [
    "AdaX",
    "AdaXW",
    "Ball",
    "Box",
    "Padax",
    "clip_grad_norm_",
    "create",
    "load_adamw_state_dict",
    "load_released_state_dict",
    "param_groups",
    "step_in_backward",
]
