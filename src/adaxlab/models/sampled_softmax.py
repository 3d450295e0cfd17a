"""The output layer: a sampled softmax to train, the full one to measure.

With targets t, samples S shared by the batch and log q from the sampler,

    loss = -log( exp(o_t - log q_t) / (exp(o_t - log q_t) + sum over s in S, s != t, of exp(o_s - log q_s)) )

A sample that is a position's target (an accidental hit) is left out for that position. Dividing by q undoes the choice
of samples: the scores o that minimise the expected loss are those of the full softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaxlab.models.log_uniform import Sampler

CHUNK = 2**26  # scores that a full softmax holds at a time
FAR = -1e30  # a score whose exponential is 0; -inf would make the gradient of a row of hits alone no number


def sampled_loss(
    hidden: Tensor,
    targets: Tensor,
    samples: Tensor,
    rows: Tensor,
    bias: Tensor,
    log_target: Tensor,
    log_sample: Tensor,
) -> Tensor:
    """The loss above for each of n positions. `rows` and `bias` belong to targets (n) and then samples (S).

    Samples are different words, at least one, in any order; float32 or float64.
    """
    n = len(targets)
    true = (hidden * rows[:n]).sum(1) + bias[:n] - log_target
    others = F.linear(hidden, rows[n:], (bias[n:] - log_sample).to(hidden.dtype))
    ordered, places = samples.sort()
    nearest = torch.searchsorted(ordered, targets.contiguous()).clamp_(max=len(samples) - 1)
    hit = torch.where(ordered[nearest] == targets, FAR, 0.0).to(others.dtype)
    others = others.scatter_add_(1, places[nearest, None], hit[:, None])
    return torch.logaddexp(torch.logsumexp(others, 1), true) - true


class Output(nn.Module):
    """Rows and biases of the vocabulary, untied from the embedding; sparse gradients on request."""

    def __init__(self, vocabulary: int, width: int, samples: int, sparse: bool = True) -> None:
        super().__init__()
        self.rows = nn.Embedding(vocabulary, width, sparse=sparse)
        self.bias = nn.Embedding(vocabulary, 1, sparse=sparse)
        self.sampler = Sampler(vocabulary, samples)
        nn.init.uniform_(self.rows.weight, -(width**-0.5), width**-0.5)
        nn.init.zeros_(self.bias.weight)

    def sampled(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """The training loss at each position: hidden [n, width], targets [n]."""
        samples = self.sampler()
        both = torch.cat([targets, samples])
        log_q = self.sampler.log_expected
        bias = self.bias(both).squeeze(1)
        return sampled_loss(hidden, targets, samples, self.rows(both), bias, log_q[targets], log_q[samples])

    def full(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """-log softmax over the whole vocabulary, at each position, a few positions at a time."""
        table, bias = self.rows.weight, self.bias.weight.squeeze(1)
        size = max(1, CHUNK // len(bias))
        parts = []
        for h, t in zip(hidden.split(size), targets.split(size), strict=True):
            parts.append(F.cross_entropy((h @ table.T).float() + bias, t, reduction="none"))
        return torch.cat(parts)
