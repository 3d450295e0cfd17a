"""Two optimizers for one model: the first updates the hidden matrices, the second all other parameters (`muon+adamw`).

A hidden matrix is a parameter with two dimensions that is neither an embedding nor the output layer. Embeddings are the
weights of `nn.Embedding` and `nn.EmbeddingBag`, parameters with names such as `embed` or `pos_...`, and parameters that
the model marks (`p.is_table = True`). The output layer is the last linear layer that the model defines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from adaxlab.errors import LabError
from adaxlab.models.gpt import TABLE

EMBEDDING = re.compile(r"emb|(^|[._])pos(ition)?([._]|$)")


def hidden_matrices(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that the first optimizer of a split updates, by name.

    >>> net = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 9))
    >>> list(hidden_matrices(net))
    ['1.weight']
    """
    others = {
        id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)
    }
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if linear:
        others.add(id(linear[-1].weight))
    return {
        name: p
        for name, p in model.named_parameters()
        if p.requires_grad
        and p.dim() == 2
        and id(p) not in others
        and not getattr(p, TABLE, False)
        and not EMBEDDING.search(name)
    }


def divide(
    params: Iterable[Any], first: Iterable[Tensor]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Divide parameters or parameter groups into two lists of groups: the parameters in `first`, and the others. Groups
    keep their settings; empty groups are omitted."""
    given: list[Any] = [p if isinstance(p, Mapping) or torch.is_tensor(p) else p[1] for p in params]
    groups = given if given and isinstance(given[0], Mapping) else [{"params": given}]
    taken = {id(p) for p in first}
    divided: tuple[list[dict[str, Any]], list[dict[str, Any]]] = ([], [])
    for group in groups:
        inside = group["params"]
        members = [inside] if torch.is_tensor(inside) else list(inside)
        for side, wanted in zip(divided, (True, False), strict=True):
            mine = [p for p in members if (id(p) in taken) is wanted and p.requires_grad]
            if mine:
                side.append({**group, "params": mine})
    return divided


class Joint(torch.optim.Optimizer):
    """Several optimizers as one: their groups form one list, for schedules, `zero_grad` and checkpoints.

    >>> a, b = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2))
    >>> both = Joint([torch.optim.SGD([a], lr=0.1), torch.optim.AdamW([b], lr=0.2)])
    >>> [group["lr"] for group in both.param_groups]
    [0.1, 0.2]
    """

    def __init__(self, parts: Sequence[torch.optim.Optimizer]) -> None:
        groups = [{"params": group["params"]} for part in parts for group in part.param_groups]
        super().__init__(groups, {})
        self.parts = list(parts)
        self._join()

    def _join(self) -> None:
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Perform one step of each optimizer."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def train(self) -> None:
        """Switch the schedule-free parts to their training weights."""
        self._switch("train")

    def eval(self) -> None:
        """Switch the schedule-free parts to their evaluation weights."""
        self._switch("eval")

    def _switch(self, mode: str) -> None:
        for part in self.parts:
            if callable(switch := getattr(part, mode, None)):
                switch()

    def state_dict(self) -> dict[str, Any]:
        """The state dicts of the parts, in order."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["parts"]
        if len(saved) != len(self.parts):
            raise ValueError(f"checkpoint of {len(saved)} parts, this optimizer has {len(self.parts)}")
        for part, state in zip(self.parts, saved, strict=True):
            part.load_state_dict(state)
        self._join()


def muon() -> Any:
    """Return torch.optim.Muon; raise LabError if this version of torch does not have it."""
    if not hasattr(torch.optim, "Muon"):
        raise LabError(f"torch {torch.__version__} has no torch.optim.Muon: Muon needs torch 2.9 or newer")
    return torch.optim.Muon
