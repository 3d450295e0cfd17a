"""The transformer: its size, that it cannot see ahead, its parts by hand; Muon beside AdamW."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from adaxlab.errors import LabError
from adaxlab.models.gpt import Attention, Decoder, Swiglu, rotate
from adaxlab.muon import MuonAdamW

SIZES = {"layers": 2, "width": 32, "heads": 2, "inner": 48, "context": 24}


def small(**more):
    torch.manual_seed(0)
    return Decoder(**{**SIZES, **more})


# -- model ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, 21_242_368),  # 2*256*512 + 8*(4*512^2 + 3*512*1024 + 2*512) + 512
        (SIZES, 2 * 256 * 32 + 2 * (4 * 32**2 + 3 * 32 * 48 + 2 * 32) + 32),
        ({"smear": True}, 21_242_368 + 8 * 8),
        ({**SIZES, "vocabulary": 10, "layers": 1}, 2 * 10 * 32 + 4 * 32**2 + 3 * 32 * 48 + 2 * 32 + 32),
    ],
)
def test_the_number_of_parameters(sizes, expected):
    assert sum(p.numel() for p in Decoder(**sizes).parameters()) == expected


def test_a_smeared_key_is_a_mixture_with_the_previous_position():
    """With a = 1 the model is the plain one; with a = 0 every key is the previous position's, and 0 at the first."""
    plain, smeared = small().double(), small(smear=True).double()
    smeared.load_state_dict(plain.state_dict(), strict=False)
    tokens = torch.randint(0, 256, (3, 20))
    mixtures = [layer.attention.smear for layer in smeared.layers]
    assert all(torch.equal(a, torch.zeros_like(a)) for a in mixtures)
    with torch.no_grad():
        for a in mixtures:
            a.fill_(50.0)
    torch.testing.assert_close(smeared(tokens), plain(tokens), rtol=1e-12, atol=1e-12)
    attention, cos, sin = smeared.layers[0].attention, smeared.cos[:2], smeared.sin[:2]
    with torch.no_grad():
        attention.smear.fill_(-50.0)
        attention.qkv.weight[:32] = attention.qkv.weight[32:64]  # q = k: a position would prefer itself
    x = torch.randn(1, 2, 32, dtype=torch.float64)
    before = attention(x, cos.double(), sin.double())
    q, k, v = attention.qkv(x).view(1, 2, 3, attention.heads, -1).permute(2, 0, 3, 1, 4)
    q, k = (
        rotate(t, cos.double(), sin.double()) for t in (q, torch.stack([0 * k[..., 0, :], k[..., 0, :]], -2))
    )
    seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(before, attention.out(seen.transpose(1, 2).reshape(1, 2, 32)))


@pytest.mark.parametrize("smear", [False, True])
def test_a_position_does_not_see_what_comes_after_it(smear):
    model = small(smear=smear).double()
    tokens = torch.randint(0, 256, (3, 20))
    scores = model(tokens)
    for place in (0, 7, 19):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] + 1) % 256
        moved = (model(changed) - scores).abs().amax(dim=(0, 2))
        assert moved[:place].max() < 1e-12 if place else True
        assert (moved[place:] > 1e-6).all()


def test_scores_have_a_gradient_from_what_came_before_only():
    model = small()
    hidden = []
    model.embedding.register_forward_hook(lambda _m, _i, out: hidden.append(out) or out.retain_grad())
    model(torch.randint(0, 256, (1, 20)))[0, 8].logsumexp(0).backward()
    size = hidden[0].grad[0].norm(dim=1)
    assert (size[:9] > 0).all()
    assert (size[9:] == 0).all()


def test_attention_by_hand():
    """Position by position in numpy: turned queries and keys, softmax over the past, weighted values."""
    torch.manual_seed(1)
    layer, n = Attention(8, 2).double(), 5
    x = torch.randn(1, n, 8).double()
    angle = torch.arange(n)[:, None] * 10000.0 ** -(torch.arange(2) / 2)
    got = layer(x, angle.cos().double(), angle.sin().double())[0].detach().numpy()
    q, k, v = np.split(x[0].numpy() @ layer.qkv.weight.detach().numpy().T, 3, axis=1)

    def turned(row, place):
        pairs = row[:2] + 1j * row[2:]
        pairs = pairs * np.exp(1j * place * np.array([1.0, 0.01]))
        return np.concatenate([pairs.real, pairs.imag])

    for i in range(n):
        parts = []
        for head in (slice(0, 4), slice(4, 8)):
            s = np.array([turned(q[i, head], i) @ turned(k[j, head], j) / 2 for j in range(i + 1)])
            parts.append(np.exp(s) / np.exp(s).sum() @ v[: i + 1, head])
        expected = layer.out.weight.detach().numpy() @ np.concatenate(parts)
        np.testing.assert_allclose(got[i], expected, rtol=1e-6, atol=1e-7)


def test_rotary_products_depend_on_the_distance_alone():
    rng = torch.Generator().manual_seed(0)
    q, k = (torch.randn(8, dtype=torch.float64, generator=rng) for _ in range(2))
    angle = torch.arange(40)[:, None].double() * torch.tensor([1.0, 0.3, 0.1, 0.01]).double()

    def product(i, j):
        return float(rotate(q, angle[i].cos(), angle[i].sin()) @ rotate(k, angle[j].cos(), angle[j].sin()))

    assert product(3, 1) == pytest.approx(product(33, 31))
    assert abs(product(3, 1) - product(3, 2)) > 1e-3


def test_swiglu_by_hand():
    torch.manual_seed(2)
    part, x = Swiglu(4, 3), torch.randn(5, 4)
    gate, up = x @ part.both.weight[:3].T, x @ part.both.weight[3:].T
    torch.testing.assert_close(part(x), (gate * gate.sigmoid() * up) @ part.out.weight.T)


def test_a_width_that_cannot_be_turned_is_an_error():
    with pytest.raises(LabError, match="width=30, heads=4: width must be a multiple of 2\\*heads"):
        Decoder(width=30, heads=4)


# -- Muon -------------------------------------------------------------------------------------------------------------


def one_step(model, tokens):
    scores = model(tokens[:, :-1])
    F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()


needs_muon = pytest.mark.skipif(
    not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon came with torch 2.9"
)


def test_an_older_torch_is_named(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(LabError, match=r"has no torch\.optim\.Muon: Muon needs torch 2\.9"):
        MuonAdamW(small().parameters())


@needs_muon
def test_muon_takes_the_hidden_matrices_and_adamw_the_rest():
    model = small()
    optimizer = MuonAdamW(model.parameters(), lr=1e-2)
    muon, adamw = optimizer.parts
    names = {id(p): name for name, p in model.named_parameters()}
    taken = {names[id(p)] for p in muon.param_groups[0]["params"]}
    rest = {names[id(p)] for p in adamw.param_groups[0]["params"]}
    assert all(name.startswith("layers.") and "norm" not in name for name in taken)
    assert len(taken) == 2 * 4
    assert {"embedding.weight", "head.weight", "norm.weight", "layers.0.norm1.weight"} <= rest
    assert taken | rest == set(names.values())
    assert not taken & rest


@needs_muon
def test_muon_and_adamw_together_are_the_two_apart():
    """Bit for bit what two optimizers of torch do, each on its own parameters, under a changing lr."""
    models = [small(), small()]
    joint = MuonAdamW(models[0].parameters(), lr=1e-2, weight_decay=0.1)
    hidden = [p for n, p in models[1].named_parameters() if n.startswith("layers.") and p.dim() == 2]
    rest = [p for n, p in models[1].named_parameters() if not (n.startswith("layers.") and p.dim() == 2)]
    apart = [
        torch.optim.Muon(hidden, lr=1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1),
    ]
    for step in range(3):
        tokens = torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(step))
        for model, group_lists in zip(models, ([joint], apart), strict=True):
            for optimizer in group_lists:
                for group in optimizer.param_groups:
                    group["lr"] = 1e-2 / (step + 1)
            one_step(model, tokens)
            for optimizer in group_lists:
                optimizer.step()
                optimizer.zero_grad()
    start = small()
    for (name, a), b, c in zip(
        models[0].named_parameters(), models[1].parameters(), start.parameters(), strict=True
    ):
        assert torch.equal(a, b), name
        assert not torch.equal(a, c), name


@needs_muon
def test_muons_checkpoint_goes_on_with_the_same_bits():
    ends = []
    for cut in (False, True):
        model = small()
        optimizer = MuonAdamW(model.parameters(), lr=1e-2)
        for step in range(4):
            if cut and step == 2:
                file = io.BytesIO()
                torch.save(optimizer.state_dict(), file)
                file.seek(0)
                optimizer = MuonAdamW(model.parameters(), lr=0.5)
                optimizer.load_state_dict(torch.load(file, weights_only=True))
                assert {group["lr"] for group in optimizer.param_groups} == {1e-2}
            one_step(model, torch.randint(0, 256, (2, 12), generator=torch.Generator().manual_seed(step)))
            optimizer.step()
            optimizer.zero_grad()
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*ends)
