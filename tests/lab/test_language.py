"""The language model: sampler, softmax, the carried state, sparse gradients.

Oracles are written out by hand: sums over all subsets, loops over positions, numpy instead of torch.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import text_sets
import torch
from torch.nn import functional as F

import adaxopt
from adaxlab import spec, task
from adaxlab.errors import LabError
from adaxlab.execute import process
from adaxlab.models.lstm import Language
from adaxlab.models.sampled_softmax import Output, Sampler, inclusion, log_uniform, sampled_loss

SMALL = {"batch": 4, "bptt": 5, "embedding": 8, "hidden": 12, "projection": 6, "samples": 16}


# -- sampler ----------------------------------------------------------------------------------------------------------


def exact(p, size):
    """{set: probability} of the first `size` different words of draws from p, by summing over their orders."""
    found = Counter()
    for order in itertools.permutations(range(len(p)), size):
        probability, left = 1.0, 1.0
        for k in order:
            probability *= p[k] / left
            left -= p[k]
        found[frozenset(order)] += probability
    return found


def test_log_uniform_is_zipfs():
    v = 1000
    p = log_uniform(v).numpy()
    np.testing.assert_allclose(
        p, [math.log((k + 2) / (k + 1)) / math.log(v + 1) for k in range(v)], rtol=1e-12
    )
    assert p.sum() == pytest.approx(1)


def test_samples_are_unique_and_as_likely_as_in_draws_without_repetition():
    v, size, draws = 6, 3, 6000
    torch.manual_seed(0)
    sampler = Sampler(v, size)
    seen = Counter(frozenset(sampler().tolist()) for _ in range(draws))
    expected = exact(log_uniform(v).tolist(), size)
    assert math.fsum(expected.values()) == pytest.approx(1)
    for chosen, q in expected.items():
        assert len(chosen) == size
        assert abs(seen[chosen] / draws - q) < 4.5 * math.sqrt(q * (1 - q) / draws)


def test_inclusion_probabilities():
    """Small: against exact ones. Large: against numpy's draws with repetition until enough are different."""
    p = log_uniform(9)
    got = inclusion(p, 4)
    assert float(got.sum()) == pytest.approx(4)
    sets = exact(p.tolist(), 4)
    for k in range(9):
        assert float(got[k]) == pytest.approx(sum(q for s, q in sets.items() if k in s), rel=0.05)
    v, size, draws = 400, 60, 1500
    rng, counts = np.random.default_rng(0), np.zeros(v)
    edges = np.log1p(np.arange(1, v + 1)) / np.log(v + 1)
    for _ in range(draws):
        words = np.searchsorted(edges, rng.random(4000), side="right")
        _, first = np.unique(words, return_index=True)
        counts[words[np.sort(first)[:size]]] += 1
    want = inclusion(log_uniform(v), size).numpy()
    worst = np.abs(counts / draws - want) / np.sqrt(want * (1 - want) / draws + 1e-6)
    assert worst.max() < 5
    assert abs(math.fsum(want) - size) < 1e-9
    assert torch.equal(inclusion(p, 9), torch.ones(9))


# -- softmax ----------------------------------------------------------------------------------------------------------


def test_all_samples_are_the_full_softmax():
    torch.manual_seed(1)
    out = Output(30, 5, samples=30, sparse=False).double()
    torch.nn.init.normal_(out.bias.weight)
    hidden, targets = torch.randn(12, 5).double().requires_grad_(), torch.randint(0, 30, (12,))
    scores = (
        hidden.detach().numpy() @ out.rows.weight.detach().numpy().T + out.bias.weight.detach().numpy()[:, 0]
    )
    by_hand = [math.log(np.exp(s).sum()) - s[t] for s, t in zip(scores, targets.tolist(), strict=True)]
    for losses in (out.full(hidden, targets), out.sampled(hidden, targets)):
        np.testing.assert_allclose(losses.detach().numpy(), by_hand, rtol=1e-5)
    parameters = [hidden, *out.parameters()]
    full = torch.autograd.grad(out.full(hidden, targets).sum(), parameters)
    some = torch.autograd.grad(out.sampled(hidden, targets).sum(), parameters)
    for a, b in zip(full, some, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def scored(o, target, samples, log_q):
    """`sampled_loss` for given scores o: a hidden vector (1,) and rows that are the scores."""
    both = torch.tensor([target, *samples])
    return sampled_loss(
        torch.ones(1, 1, dtype=o.dtype),
        torch.tensor([target]),
        torch.tensor(samples),
        o[both][:, None],
        torch.zeros(len(both)),
        log_q[torch.tensor([target])],
        log_q[torch.tensor(samples)],
    ).squeeze()


def by_hand(hidden, targets, samples, rows, bias, log_target, log_sample):
    """`sampled_loss` as a loop over positions and samples."""
    losses = []
    for i, t in enumerate(targets.tolist()):
        true = hidden[i] @ rows[i] + bias[i] - log_target[i]
        others = [
            hidden[i] @ rows[len(targets) + j] + bias[len(targets) + j] - log_sample[j]
            for j, s in enumerate(samples.tolist())
            if s != t
        ]
        losses.append(torch.logsumexp(torch.stack([true, *others]), 0) - true)
    return torch.stack(losses)


@pytest.mark.parametrize(
    ("targets", "samples"),
    [
        ([3, 7, 9, 3], [9, 1, 4, 3, 0, 2]),
        ([13, 17], [2, 3, 1]),
        ([1, 1, 2], [1]),
        ([3, 7], [5]),
        ([5, 5, 5], [6, 5]),
        ([99, 0, 98], [98, 3, 4]),
    ],
)
def test_the_sampled_loss_and_its_gradients_by_hand(targets, samples):
    """Samples in any order: hits in any place, no hit, hits alone, targets beyond all samples."""
    rng = torch.Generator().manual_seed(len(samples))
    n, total = len(targets), len(targets) + len(samples)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=rng)

    leaves = [draw(n, 6), draw(total, 6), draw(total)]
    logs = draw(n), draw(len(samples))
    words = torch.tensor(targets), torch.tensor(samples)
    found = []
    for function in (sampled_loss, by_hand):
        hidden, rows, bias = (leaf.clone().requires_grad_() for leaf in leaves)
        losses = function(hidden, *words, rows, bias, *logs)
        (losses * torch.arange(1, n + 1)).sum().backward()
        found.append((losses, hidden.grad, rows.grad, bias.grad))
    for ours, hand in zip(*found, strict=True):
        torch.testing.assert_close(ours, hand, rtol=1e-12, atol=1e-12)


def test_the_sampled_partition_is_right_in_expectation():
    """Over all sets, by their exact probabilities: E of the samples' part of the partition is the full one's."""
    v, size, target = 6, 3, 2
    o = torch.randn(v, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    sets = exact(log_uniform(v).tolist(), size)
    q = torch.tensor([sum(p for s, p in sets.items() if k in s) for k in range(v)], dtype=torch.float64)
    total = 0.0
    for chosen, probability in sets.items():
        ratio = math.exp(float(scored(o, target, sorted(chosen), q.log())))  # (true + others)/true
        total += probability * (ratio - 1) * math.exp(o[target]) / float(q[target])
    full = sum(math.exp(o[k]) for k in range(v) if k != target)
    assert total == pytest.approx(full, rel=1e-5)


def test_the_expected_sampled_loss_is_least_at_the_full_softmaxs_scores():
    """Each word sampled by itself with probability q (all 64 sets, exactly): the gradient at o = log P is 0."""
    v = 6
    rng = torch.Generator().manual_seed(3)
    true = torch.softmax(torch.randn(v, dtype=torch.float64, generator=rng), 0)
    q = 0.15 + 0.7 * torch.rand(v, dtype=torch.float64, generator=rng)
    o = true.log().requires_grad_()
    sizes = {}
    for corrected in (True, False):
        loss = torch.zeros((), dtype=torch.float64)
        log_q = q.log() if corrected else torch.zeros_like(q)
        for bits in itertools.product((0, 1), repeat=v):
            weight = math.prod(float(p if b else 1 - p) for p, b in zip(q, bits, strict=True))
            samples = [k for k, b in enumerate(bits) if b]
            for t in range(v):
                if samples:
                    loss = loss + weight * true[t] * scored(o, t, samples, log_q)
        sizes[corrected] = float(torch.autograd.grad(loss, o)[0].norm())
    assert sizes[True] < 1e-7
    assert sizes[False] > 1e-2


def test_a_target_among_the_samples_is_not_counted_twice():
    o, log_q = torch.tensor([1.0, 2.0, 0.5]), torch.zeros(3)
    assert torch.equal(scored(o, 1, [0, 1, 2], log_q), scored(o, 1, [0, 2], log_q))


# -- model ------------------------------------------------------------------------------------------------------------


def small_model(vocabulary=20, **more):
    torch.manual_seed(0)
    sizes = {"batch": 3, "embedding": 8, "hidden": 12, "projection": 6, "samples": 10, "dropout": 0.0}
    return Language(vocabulary, **{**sizes, **more})


def test_the_papers_sizes():
    model = Language(1000, batch=1)
    lstm = sum(4 * 2048 * (n + 2048 + 2) for n in (256, 2048))
    assert sum(p.numel() for p in model.parameters()) == 1000 * 256 * 2 + 1000 + lstm + 2048 * 256 + 256
    assert model.drop.p == model.lstm.dropout == 0.01
    assert model.softmax.rows.weight is not model.embedding.weight


@pytest.mark.parametrize("training", [True, False])
def test_the_hidden_state_is_carried(training):
    """Windows of 4 and 3 words give what one pass over 7 gives; a fresh one forgets."""
    model = small_model().train(training)
    tokens = torch.randint(0, 20, (3, 7))
    whole = model.encode(tokens, fresh=True)
    parts = [model.encode(tokens[:, :4], fresh=True), model.encode(tokens[:, 4:], fresh=False)]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    model.encode(tokens[:, :4], fresh=True)
    assert not torch.allclose(model.encode(tokens[:, 4:], fresh=True), whole[:, 4:], atol=1e-3)


def test_evaluation_leaves_the_state_of_training_alone():
    model = small_model()
    tokens = torch.randint(0, 20, (3, 7))
    model.encode(tokens, fresh=True)
    before = model.h.clone(), model.c.clone()
    model.eval()
    model.encode(tokens[:2], fresh=True)
    assert torch.equal(model.h, before[0])
    assert torch.equal(model.c, before[1])
    assert before[0].abs().sum() > 0


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_a_measure_begins_at_zero_or_in_the_state_of_training(rows):
    """Against the LSTM called with that state; a measure of more rows than training has takes them again."""
    text, other = torch.randint(0, 20, (3, 7)), torch.randint(0, 20, (rows, 4))
    for begin in ("zero", "carried"):
        model = small_model(eval_state=begin)
        model.encode(text, fresh=True)
        _, (h, c) = model.lstm(model.embedding(text))
        state = tuple(torch.cat([x, x], 1)[:, :rows] * (begin == "carried") for x in (h, c))
        out, _ = model.lstm(model.embedding(other), state)
        model.eval()
        for _ in range(2):  # a second measure begins there again
            torch.testing.assert_close(model.encode(other, fresh=True), model.projection(out))
            model.encode(other, fresh=False)
        assert torch.equal(model.h, h)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"eval_state": "training"}, "eval_state.*training.*zero.*carried"),
        ({"eval_words": -1}, "eval_words=-1: must be >= 0"),
    ],
)
def test_options_of_a_measure_that_cannot_be(options, words):
    with pytest.raises(LabError, match=words):
        task.load("language", options)


@pytest.mark.parametrize("eval_words", [0, 40])
def test_a_measure_of_the_first_words_alone(eval_words, tmp_path):
    root = text_sets.benchmark(tmp_path / "set")
    made = task.load("language", {**SMALL, "text": "folder", "data": str(root), "eval_words": eval_words})
    corpus, found = made.corpus(), made.data()
    for split, ids in (("valid", corpus.valid), ("test", corpus.test)):
        expected = ids[:eval_words] if eval_words else ids
        words = found[split].targets.flatten()
        assert words[words >= 0].tolist() == expected.tolist()
    assert found["train"].words > 40
    assert made.digest() == task.load("language", {"text": "folder", "data": str(root)}).digest()


def test_perplexity_against_a_full_softmax_by_hand(tmp_path):
    """The lab's number for the test split equals a loop over single words, one row of text after the other."""
    root = text_sets.benchmark(tmp_path / "set")
    options = {**SMALL, "text": "folder", "data": str(root), "dropout": 0.0}
    asked = spec.make(
        study="s", task="language", task_options=options, optimizer="adam", options={"lr": 1e-2}, epochs=1,
        batch_size=4, seed=0,
    )  # fmt: skip
    made = task.load("language", options)
    kept = {}
    made_model = type(made).model

    def remember(self):
        kept["model"] = made_model(self)
        return kept["model"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(made), "model", remember)
        record = process.run(asked, tmp_path / "runs")
    model, ids = kept["model"].eval(), made.corpus().test
    rows = min(32, len(ids))
    columns = -(-len(ids) // rows)
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(ids), columns):
            state = None
            for i in range(start, min(start + columns, len(ids))):
                before = torch.tensor([[int(ids[i - 1]) if i else made.corpus().end]])
                out, state = model.lstm(model.embedding(before), state)
                scores = (
                    model.projection(out)[0, 0] @ model.softmax.rows.weight.T
                    + model.softmax.bias.weight[:, 0]
                )
                total -= float(F.log_softmax(scores.double(), 0)[int(ids[i])])
    assert record.done["metric"] == pytest.approx(total / len(ids), rel=1e-5)
    assert math.exp(record.done["metric"]) < len(made.corpus().words)


@pytest.mark.parametrize("name", ["adam", "amsgrad", "adax"])
def test_sparse_gradients_are_dense_ones_for_words_met_at_every_step(name):
    """All 6 words in every window, all 6 sampled: tables and net end equal, sparse or dense."""
    ends = []
    for sparse in (True, False):
        model = small_model(6, batch=2, sparse=sparse, samples=6).double()
        model.softmax.sampler.float()
        optimizer = adaxopt.create(name, model.parameters(), lr=1e-2)
        rng = torch.Generator().manual_seed(5)
        for step in range(6):
            tokens = torch.stack([torch.randperm(6, generator=rng) for _ in range(2)])
            loss = model(tokens, tokens.roll(-1, 1).flatten(), None, step == 0).mean()
            loss.backward()
            assert model.embedding.weight.grad.is_sparse == model.softmax.rows.weight.grad.is_sparse == sparse
            for part in model.parts():
                adaxopt.clip_grad_norm_(part.parameters(), 0.05)
            optimizer.step()
            optimizer.zero_grad()
        ends.append([p.detach() for p in model.parameters()])
    for a, b in zip(*ends, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_each_part_is_clipped_by_itself(tmp_path):
    root = text_sets.ptb(tmp_path)
    made = task.load("language", {**SMALL, "text": "ptb", "data": str(root), "clip": 1e-3})
    torch.manual_seed(0)
    model = made.model()
    made.loss(model, next(iter(made.data()["train"])))[0].backward()
    made.before_step(model)
    for part in model.parts():
        grads = [p.grad.to_dense() for p in part.parameters()]
        squares = sum(float(g.square().sum()) for g in grads)
        assert math.sqrt(squares) == pytest.approx(1e-3, rel=1e-2)
