"""A small transformer on made text, optimizers of a user's own, and tasks that wait: for tests of any optimizer."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def text(n, seed):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 12, (n, 9), generator=rng)
    x[:, 1::2] = (x[:, 0:-1:2] * 5 + 3) % 12  # every second letter follows from the one before
    return (x,)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(12, 16)
        self.pos = nn.Parameter(torch.zeros(8, 16))
        self.layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 12)

    def forward(self, x):
        hidden = self.embedding(x) + self.pos[: x.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.norm(self.layer(hidden, src_mask=mask, is_causal=True)))


HIDDEN = {
    "layer.self_attn.in_proj_weight",
    "layer.self_attn.out_proj.weight",
    "layer.linear1.weight",
    "layer.linear2.weight",
}


class Letters:
    metric, higher_is_better = "loss", False
    epochs, batch_size = 2, 16

    def data(self):
        return {"train": text(96, 1), "test": text(32, 2)}

    def model(self):
        return Net()

    def loss(self, model, batch):
        (x,) = batch
        return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def two_groups(model, lr=1e-3, weight_decay=0.1):
    """A factory: no decay for vectors."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr)


def forgets(model, lr=1e-3):
    return torch.optim.SGD([next(model.parameters())], lr=lr)


def nothing(model, lr=1e-3):
    return None


def without_lr(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Scaled(torch.optim.Optimizer):
    """Its step size has another name than lr."""

    def __init__(self, params, scale=0.1):
        super().__init__(params, {"scale": scale})


class Matrices(torch.optim.Optimizer):
    """A user's optimizer for one group of matrices: steps along the sign of the gradient's rows."""

    def __init__(self, params, lr=0.01, scale=1.0):
        super().__init__(params, {"lr": lr, "scale": scale})
        if len(self.param_groups) != 1 or any(p.dim() != 2 for p in self.param_groups[0]["params"]):
            raise ValueError("Matrices takes one group of matrices")

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.sub_(
                F.normalize(p.grad, dim=1), alpha=self.param_groups[0]["lr"] * self.param_groups[0]["scale"]
            )


class Averages(torch.optim.SGD):
    """Trains at one set of weights and is evaluated at another, as schedule-free optimizers do; knows misuse."""

    def __init__(self, params, lr=0.1):
        super().__init__(params, lr=lr)
        self.mode, self.calls = "eval", []

    def train(self):
        self.mode = "train"
        self.calls.append("train")

    def eval(self):
        self.mode = "eval"
        self.calls.append("eval")

    def step(self, closure=None):
        if self.mode != "train":
            raise RuntimeError("step in evaluation mode")
        return super().step()
