"""Muon for the hidden matrices and AdamW for the rest, over a list of parameters: the optimizer of the gpt study.

`--optimizers muon+adamw` is the same split on any model. This class divides by the marks of the gpt study's model
(`p.is_table = True`, an embedding or an output head), and the study's records name it. One lr serves both:
Muon's update is scaled to the size of AdamW's (`adjust_lr_fn="match_rms_adamw"`, Liu et al. 2025).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from adaxlab.joint import Joint, divide, muon
from adaxlab.models.gpt import TABLE


class MuonAdamW(Joint):
    """`torch.optim.Muon` and `torch.optim.AdamW` as one optimizer.

    >>> model = torch.nn.Linear(3, 2)
    >>> [(type(part).__name__, len(part.param_groups[0]["params"])) for part in MuonAdamW(model.parameters()).parts]
    [('Muon', 1), ('AdamW', 1)]

    Defaults: momentum and steps of torch.optim.Muon; betas, decay and lr as is usual for AdamW on transformers.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        ns_steps: int = 5,
    ) -> None:
        given = list(params)
        matrices, rest = divide(given, (p for p in given if p.dim() == 2 and not getattr(p, TABLE, False)))
        parts: list[torch.optim.Optimizer] = []
        common: dict[str, Any] = {"lr": lr, "weight_decay": weight_decay}
        if matrices:
            how = {"momentum": momentum, "ns_steps": ns_steps, "adjust_lr_fn": "match_rms_adamw"}
            parts.append(muon()(matrices, **common, **how))
        if rest:
            parts.append(torch.optim.AdamW(rest, **common, betas=betas, eps=eps))
        super().__init__(parts)
