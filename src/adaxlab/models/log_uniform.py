"""Log-uniform sampling without replacement, and the inclusion probability of each word.

Words are numbered by frequency, most frequent first, so the log-uniform distribution approximates Zipf's law:

    P(k) = log((k + 2)/(k + 1)) / log(V + 1),        k = 0 ... V-1

Drawing from P until S different words have appeared is equivalent to an exponential race: draw an exponential waiting
time with rate P(k) for each word and take the S smallest. This needs no loop and no synchronisation with the device.

A word is among the S with probability about

    q_k = 1 - (1 - P(k))^n,        n such that sum_k q_k = S

where n is the number of draws that give S different words. TensorFlow, and the code that the paper's experiment is
based on, use the number of draws of the batch; we use its expected value, so that q is constant during a run.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from adaxlab.errors import LabError


def log_uniform(vocabulary: int) -> Tensor:
    """Return P(k) for all words, float64.

    >>> [round(p, 4) for p in log_uniform(3).tolist()]
    [0.5, 0.2925, 0.2075]
    """
    k = torch.arange(vocabulary, dtype=torch.float64)
    return torch.log1p(1 / (k + 1)) / math.log(vocabulary + 1)


def inclusion(p: Tensor, samples: int) -> Tensor:
    """Return q_k for `samples` different words (float64), by bisection on log n."""
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
    """Samples S different words of a vocabulary of V; `log_expected` is log q of every word.

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
        """Return the ids of the sampled words, drawn from torch's generator of the device."""
        if self.samples == len(self.log_rate):
            return torch.arange(self.samples, device=self.log_rate.device)
        waiting = torch.empty_like(self.log_rate).exponential_().log_() - self.log_rate
        return waiting.topk(self.samples, largest=False, sorted=False).indices
