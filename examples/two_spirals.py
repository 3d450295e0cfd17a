"""A task of your own: tell two spirals apart. The whole protocol is below; no base class, nothing to register.

adax compare examples/two_spirals.py:TwoSpirals --optimizers adamw adaxw --tune 4 --seeds 3
"""

import math

import torch
from torch import nn
from torch.nn import functional as F


class TwoSpirals:
    metric = "accuracy"
    higher_is_better = True
    epochs, batch_size, schedule = 40, 50, "cosine"  # defaults that the command line can override

    def __init__(self, noise: float = 0.3):  # --task-option noise=0.1
        self.noise = noise

    def points(self, n: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        turn = torch.rand(n, generator=generator).sqrt() * 3 * math.pi
        side = torch.randint(2, (n,), generator=generator)
        angle = turn + math.pi * side
        x = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 3
        return x + self.noise * torch.randn(n, 2, generator=generator), side

    def data(self):
        return {"train": self.points(1000, seed=1), "test": self.points(500, seed=2)}

    def model(self):
        return nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))

    def loss(self, model, batch):
        x, side = batch
        out = model(x)
        return F.cross_entropy(out, side), out.argmax(1) == side
