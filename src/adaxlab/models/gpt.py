"""A decoder-only transformer: pre-norm with RMSNorm, rotary position embeddings, SwiGLU, no biases.

    x <- x + attention(norm(x)),  x <- x + swiglu(norm(x))        for each layer;  scores = head(norm(x))

Weights are initialised as N(0, 0.02^2), output projections of residual branches with std 0.02/sqrt(2*layers).

With `smear` each key is mixed with the previous position's, k_t <- a*k_t + (1 - a)*k_{t-1}, with one learned a per head
(1/2 at the start). A layer can then look for what followed an earlier copy of the present byte, which otherwise takes
two layers and is learned suddenly, at a time that depends on the seed (smeared keys: Olsson et al. 2022).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adaxlab.errors import LabError

TABLE = "is_table"
"""Attribute that marks parameters of embedding and head, which are not hidden matrices: Muon excludes them."""


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i + half}) of [..., length, size] by the angle of its position."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, width: int, heads: int, smear: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.smear = nn.Parameter(torch.zeros(heads, 1, 1)) if smear else None
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        if self.smear is not None:
            own = self.smear.sigmoid()
            k = own * k + (1 - own) * F.pad(k, (0, 0, 1, -1))
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(seen.transpose(1, 2).reshape(n, length, width))


class Swiglu(nn.Module):
    """out(silu(gate(x)) * up(x)), with gate and up in one matrix."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.both(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * up)


class Layer(nn.Module):
    """One layer of the decoder."""

    def __init__(self, width: int, heads: int, inner: int, smear: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.swiglu = Attention(width, heads, smear), Swiglu(width, inner)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.swiglu(self.norm2(x))


class Decoder(nn.Module):
    """The decoder; it returns logits of the next token. The defaults have 21.2 million parameters.

    vocabulary*width*2 + layers*(4*width^2 + 3*width*inner + 2*width) + width, and with `smear` layers*heads more
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        vocabulary: int = 256,
        context: int = 512,
        layers: int = 8,
        width: int = 512,
        heads: int = 8,
        inner: int = 1024,
        smear: bool = False,
    ) -> None:
        super().__init__()
        if width % (2 * heads):
            raise LabError(f"width={width}, heads={heads}: width must be a multiple of 2*heads")
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads, inner, smear) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if name.endswith("out.weight") else 0.02)
        for table in (self.embedding.weight, self.head.weight):
            setattr(table, TABLE, True)
        half = width // heads // 2
        angle = torch.arange(context)[:, None] * 10000 ** -(torch.arange(half) / half)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits [n, length, vocabulary] of tokens [n, length]."""
        length = tokens.shape[1]
        x = self.embedding(tokens).to(self.norm.weight.dtype)  # residuals are float32 with bf16 matrices too
        for layer in self.layers:
            x = layer(x, self.cos[:length], self.sin[:length])
        return self.head(self.norm(x))
