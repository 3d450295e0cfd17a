"""The output layer: a sampled softmax for training, the full softmax for evaluation.

With targets t, samples S shared by the batch and log q from the sampler,

    loss = -log( exp(o_t - log q_t) / (exp(o_t - log q_t) + sum over s in S, s != t, of exp(o_s - log q_s)) )

A sample that equals the target of a position (an accidental hit) is excluded at that position. Dividing by q corrects
for the sampling: the logits o that minimise the expected loss are those of the full softmax.

The samples are log-uniform, without replacement. Words are numbered by frequency, most frequent first, so the
log-uniform distribution approximates Zipf's law:

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
from torch.nn import functional as F

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


CHUNK = 2**26  # logits that the full softmax computes at a time
EXCLUDED = -1e30  # a logit whose exponential is 0; with -inf the gradient is NaN when all samples are hits


def sampled_loss(
    hidden: Tensor,
    targets: Tensor,
    samples: Tensor,
    rows: Tensor,
    bias: Tensor,
    log_target: Tensor,
    log_sample: Tensor,
) -> Tensor:
    """Return the loss above for each of n positions. `rows` and `bias` belong to targets (n), then samples (S).

    Samples are at least one distinct word, in any order; float32 or float64.
    """
    n = len(targets)
    true = (hidden * rows[:n]).sum(1) + bias[:n] - log_target
    others = F.linear(hidden, rows[n:], (bias[n:] - log_sample).to(hidden.dtype))
    ordered, places = samples.sort()
    nearest = torch.searchsorted(ordered, targets.contiguous()).clamp_(max=len(samples) - 1)
    hit = torch.where(ordered[nearest] == targets, EXCLUDED, 0.0).to(others.dtype)
    others = others.scatter_add_(1, places[nearest, None], hit[:, None])
    return torch.logaddexp(torch.logsumexp(others, 1), true) - true


class Output(nn.Module):
    """Output weights and biases of the vocabulary, not tied to the embedding; gradients are sparse if `sparse`."""

    def __init__(self, vocabulary: int, width: int, samples: int, sparse: bool = True) -> None:
        super().__init__()
        self.rows = nn.Embedding(vocabulary, width, sparse=sparse)
        self.bias = nn.Embedding(vocabulary, 1, sparse=sparse)
        self.sampler = Sampler(vocabulary, samples)
        nn.init.uniform_(self.rows.weight, -(width**-0.5), width**-0.5)
        nn.init.zeros_(self.bias.weight)

    def sampled(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the training loss at each position: hidden [n, width], targets [n]."""
        samples = self.sampler()
        both = torch.cat([targets, samples])
        log_q = self.sampler.log_expected
        bias = self.bias(both).squeeze(1)
        return sampled_loss(hidden, targets, samples, self.rows(both), bias, log_q[targets], log_q[samples])

    def full(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return -log softmax over the whole vocabulary at each position, computed in chunks."""
        table, bias = self.rows.weight, self.bias.weight.squeeze(1)
        size = max(1, CHUNK // len(bias))
        parts = []
        for h, t in zip(hidden.split(size), targets.split(size), strict=True):
            parts.append(F.cross_entropy((h @ table.T).float() + bias, t, reduction="none"))
        return torch.cat(parts)
