"""Log-uniform samples without repetition, and how often each word is among them.

Words are numbered by frequency, so that a word's number stands for its rarity (Zipf's law):

    P(k) = log((k + 2)/(k + 1)) / log(V + 1),        k = 0 ... V-1

Drawing from P until S different words have come is a race: give each word a waiting time of an exponential clock with
rate P(k) and take the S that ring first. The race needs no loop and no look at the device, and has the same
distribution, word for word.

A word is among the S with probability about

    q_k = 1 - (1 - P(k))^n,        n such that sum_k q_k = S

n being the number of draws that S different words take. TensorFlow and the code that the paper's experiment goes back
to put the number of draws that a batch happened to need; its expected value is used here, so that q is a constant of
the run.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from adaxlab.errors import LabError


def log_uniform(vocabulary: int) -> Tensor:
    """P(k) in float64.

    >>> [round(p, 4) for p in log_uniform(3).tolist()]
    [0.5, 0.2925, 0.2075]
    """
    k = torch.arange(vocabulary, dtype=torch.float64)
    return torch.log1p(1 / (k + 1)) / math.log(vocabulary + 1)


def inclusion(p: Tensor, samples: int) -> Tensor:
    """q_k for `samples` different words (float64), by bisection on log n."""
    if samples >= len(p):
        return torch.ones_like(p)
    log_miss = torch.log1p(-p)
    low, high = 0.0, 80.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if float(-torch.expm1(math.exp(middle) * log_miss).sum()) < samples:
            low = middle
        else:
            high = middle
    return -torch.expm1(math.exp(high) * log_miss)


class Sampler(nn.Module):
    """S different words of a vocabulary of V, and log q of every word. Buffers follow the model's device.

    >>> sampler = Sampler(1000, 64)
    >>> words = sampler()
    >>> len(words.unique()), round(float(sampler.log_expected.exp().sum()))
    (64, 64)
    """

    log_expected: Tensor
    log_rate: Tensor

    def __init__(self, vocabulary: int, samples: int) -> None:
        super().__init__()
        if not samples > 0:
            raise LabError(f"samples={samples}: must be > 0")
        self.samples = min(samples, vocabulary)
        p = log_uniform(vocabulary)
        self.register_buffer("log_expected", inclusion(p, self.samples).log().float(), persistent=False)
        self.register_buffer("log_rate", p.log().float(), persistent=False)

    def forward(self) -> Tensor:
        """Numbers of the sampled words, from torch's generator of the device."""
        if self.samples == len(self.log_rate):
            return torch.arange(self.samples, device=self.log_rate.device)
        waiting = torch.empty_like(self.log_rate).exponential_().log_() - self.log_rate
        return waiting.topk(self.samples, largest=False, sorted=False).indices
