"""Muon for the hidden matrices, AdamW for everything else, behind one optimizer.

    adax compare gpt --optimizers adamw adaxw adaxlab.muon:MuonAdamW

A parameter goes to `torch.optim.Muon` when it has two dimensions and its model does not mark it as a table
(`p.is_table = True`, an embedding or an output head). One lr serves both: Muon's update is scaled to the size of
AdamW's (`adjust_lr_fn="match_rms_adamw"`, Liu et al. 2025), so AdamW's lr and weight decay carry over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from adaxlab.errors import LabError
from adaxlab.models.gpt import TABLE


class MuonAdamW(torch.optim.Optimizer):
    """Two optimizers whose groups are one list: schedules, `zero_grad` and checkpoints see a single one.

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
        super().__init__(given, {"lr": lr})
        matrices = [p for p in given if p.dim() == 2 and not getattr(p, TABLE, False)]
        taken = {id(p) for p in matrices}
        rest = [p for p in given if id(p) not in taken]
        self.parts: list[torch.optim.Optimizer] = []
        if matrices and not hasattr(torch.optim, "Muon"):
            raise LabError(
                f"torch {torch.__version__} has no torch.optim.Muon: MuonAdamW needs torch 2.9 or newer"
            )
        if matrices:
            self.parts.append(
                torch.optim.Muon(
                    matrices,
                    lr=lr,
                    weight_decay=weight_decay,
                    momentum=momentum,
                    ns_steps=ns_steps,
                    adjust_lr_fn="match_rms_adamw",
                )
            )
        if rest:
            self.parts.append(torch.optim.AdamW(rest, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self._join()

    def _join(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step of both."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The checkpoints of the two, in order."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["parts"]
        if len(saved) != len(self.parts):
            raise ValueError(f"checkpoint of {len(saved)} parts, this optimizer has {len(self.parts)}")
        for part, state in zip(self.parts, saved, strict=True):
            part.load_state_dict(state)
        self._join()
