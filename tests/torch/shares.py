"""The kernel's shares of some tensors without an optimizer: what `Plan` makes of a group, on a table's own terms."""

from types import SimpleNamespace

import torch

from adaxopt.torch import fused_cuda
from adaxopt.torch.share import Part


class Shares:
    def __init__(self, rule, params, states, *, indices, offsets, **group):
        self.rule, self.params, self.states, self.group = rule, list(params), states, group
        self.drawn = list(zip(indices, offsets, strict=True))
        self.buckets = self._made([p.grad for p in self.params])

    def _made(self, grads):
        groups = {}
        for i, (p, state, g) in enumerate(zip(self.params, self.states, grads, strict=True)):
            groups.setdefault(fused_cuda.key(p, state, g, False), []).append(i)
        self.members = list(groups.values())
        return [fused_cuda.Share(self._part(dtype, some)) for (dtype, *_), some in groups.items()]

    def _part(self, dtype: torch.dtype, some: list[int]) -> Part:
        params, states = [self.params[i] for i in some], [self.states[i] for i in some]
        indices, offsets = zip(*(self.drawn[i] for i in some), strict=True)
        method = SimpleNamespace(rule=self.rule)
        return Part(method, self.group, params, states, params, states, dtype, indices, offsets, {})

    def step(self, hyper, scale=None, found=None, *, grads=None):
        """Step; return the positions that were left alone."""
        grads = [p.grad for p in self.params] if grads is None else grads
        mine = [[grads[i] for i in some] for some in self.members]
        if any(share.moved(some, False) for share, some in zip(self.buckets, mine, strict=True)):
            self.buckets = self._made(grads)
            mine = [[grads[i] for i in some] for some in self.members]
        left = []
        for share, some, given in zip(self.buckets, self.members, mine, strict=True):
            refused = share.step(hyper, given, scale, found, share.alike(*given))
            left += [some[i] for i in refused]
        return left
