"""The output layer: a sampled softmax for training, the full softmax for evaluation.

With targets t, samples S shared by the batch and log q from the sampler,

    loss = -log( exp(o_t - log q_t) / (exp(o_t - log q_t) + sum over s in S, s != t, of exp(o_s - log q_s)) )

A sample that equals the target of a position (an accidental hit) is excluded at that position. Dividing by q corrects
for the sampling: the logits o that minimise the expected loss are those of the full softmax.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaxlab.models.log_uniform import Sampler

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
