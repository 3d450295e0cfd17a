"""The task protocol: what is accepted, and one line for everything that is not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from adaxlab import batches, optimizer_options, optimizers, spec, task
from adaxlab.errors import LabError, RunError
from adaxlab.execute import process
from adaxopt.zoo import METHODS

TINY = str(Path(__file__).with_name("tiny.py"))


def spec_of(name="Tiny", **changes):
    given = dict(
        study="s", task=f"{TINY}:{name}", optimizer="adaxw", options={}, epochs=2, batch_size=16, seed=0
    )
    return spec.make(**{**given, **changes})


def test_digits_is_the_set_it_says():
    data = task.load("digits").data()
    (x, y), (x_test, y_test) = data["train"], data["test"]
    assert (x.shape, x_test.shape) == ((1347, 1, 8, 8), (450, 1, 8, 8))
    assert torch.bincount(torch.cat([y, y_test])).tolist() == [
        178,
        182,
        177,
        183,
        181,
        182,
        181,
        179,
        174,
        180,
    ]
    pixels = torch.cat([x, x_test]) * 16
    assert (pixels.min(), pixels.max(), pixels.frac().abs().max()) == (0, 16, 0)
    assert round(pixels.mean().item(), 4) == 4.8842  # the mean that the set is known by
    assert Path(task.__file__).with_name("tasks").joinpath("digits_LICENCE.md").read_text().count("CC BY 4.0")


def test_digits_net_has_the_size_it_says():
    assert sum(p.numel() for p in task.load("digits").model().parameters()) == 13_706
    assert task.load("digits", {"width": 4}).width == 4


BROKEN = [
    ("NoMetric", LabError, "lacks metric, loss; a task has metric, higher_is_better, data, model, loss"),
    ("BadFlag", LabError, "higher_is_better='yes': must be True or False"),
    ("BadData", LabError, "data() gave tuple; it must be a dict with 'train', 'test' and perhaps 'valid'"),
    ("BadKey", LabError, "unknown split in data()"),
    ("BadModel", LabError, "model() gave function; it must be a torch.nn.Module"),
    ("FrozenModel", LabError, "no parameter that requires a gradient"),
    ("UnevenRows", LabError, "tensors of [10, 9] rows"),
    ("Generator", LabError, "generator has no length (it can be read only once)"),
    ("LoneLoss", LabError, "loss() gave Tensor; it must return (loss, metric)"),
    ("VectorLoss", LabError, "must be a tensor with one value, not shape (16,); take its mean"),
    ("DetachedLoss", LabError, "does not depend on the model's parameters"),
    ("NumpyRows", LabError, "data()['train']: NumPy arrays; give tensors (torch.from_numpy)"),
    ("TextMetric", LabError, "loss() gave the accuracy as str; it must be a tensor or a number"),
    ("NoMetricValue", LabError, "loss() gave the accuracy as NoneType; it must be a tensor or a number"),
    ("NoRows", LabError, "eval_batch_size=0: must be a whole number >= 1"),
    ("NanAtOnce", RunError, "the loss is nan on the first batch, before any step"),
    ("NanMetric", RunError, "the accuracy is nan though the loss is a number"),
    ("Raises", RunError, "ValueError: the third column is empty (at tiny.py:"),
    (
        "WrongShape",
        RunError,
        "cannot be multiplied (16x8 and 1x2) (at tiny.py:",
    ),  # raised in torch's own file
]


@pytest.mark.parametrize(("name", "kind", "words"), BROKEN, ids=[row[0] for row in BROKEN])
def test_a_broken_task_is_one_line(name, kind, words, tmp_path):
    with pytest.raises(LabError) as caught:
        process.run(spec_of(name), tmp_path)
    assert type(caught.value) is kind
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "digit",
            f"unknown task 'digit'; known are {', '.join(task.BUILT_IN)}, or your own as file.py:Class",
        ),
        ("nowhere.py:Task", "no such file"),
        (f"{TINY}:Tyny", "unknown class in"),
        (f"{TINY}:made", "is a Raises object; name its class, or a function that makes a task"),
        ("no_such_module_here:Task", "cannot be imported"),
    ],
)
def test_an_unknown_task(name, words):
    with pytest.raises(LabError, match=words.replace("(", "\\(")):
        task.load(name)


def test_a_file_that_does_not_run(tmp_path):
    (tmp_path / "bad.py").write_text("import numpyy\n")
    with pytest.raises(LabError, match="ModuleNotFoundError: No module named 'numpyy'"):
        task.load(f"{tmp_path / 'bad.py'}:Task")


def test_options_reach_the_task_and_wrong_ones_are_named():
    assert task.load(f"{TINY}:Tiny", {"rows": 33}).data()["train"][0].shape == (33, 8)
    with pytest.raises(LabError, match="colour"):
        task.load(f"{TINY}:Tiny", {"colour": 1})


def test_an_edited_task_is_another_run(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(Path(TINY).read_text())
    before = spec_of(task=f"{file}:Tiny")
    file.write_text(Path(TINY).read_text() + "\n# edited\n")
    assert spec.digest(spec_of(task=f"{file}:Tiny")) != spec.digest(before)


def test_every_kind_of_split_gives_the_same_examples():
    x, y = torch.arange(10.0).reshape(10, 1), torch.arange(10)
    device = torch.device("cpu")
    dataset = torch.utils.data.TensorDataset(x, y)
    ready = [(x[i : i + 4], y[i : i + 4]) for i in (0, 4, 8)]
    kinds = {
        "tensors": batches.source((x, y), 4, device, "t"),
        "dataset": batches.source(dataset, 4, device, "d"),
        "batches": batches.source(ready, 4, device, "b"),
    }
    for name, source in kinds.items():
        assert len(source) == 3, name
        got = list(source.batches(None))
        assert [rows for _, rows in got] == [4, 4, 2], name
        assert torch.cat([batch[1] for batch, _ in got]).tolist() == list(range(10)), name
        assert torch.cat([batch[1] for batch, _ in source.batches(None, skip=1)]).tolist() == list(
            range(4, 10)
        )
    order = batches.order(10, seed=3, epoch=1)
    for name in ("tensors", "dataset"):
        shuffled = [batch[1] for batch, _ in kinds[name].batches(order)]
        assert torch.cat(shuffled).tolist() == order.tolist(), name


def test_large_tensors_are_gathered_batch_by_batch_alike(monkeypatch):
    x = torch.randn(50, 3)
    order = batches.order(50, 0, 0)
    whole = [b for b, _ in batches.Tensors((x,), 8).batches(order, 2)]
    monkeypatch.setattr(batches, "WHOLE", 0)
    parts = [b for b, _ in batches.Tensors((x,), 8).batches(order, 2)]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole, parts, strict=True))


def test_order_depends_on_seed_and_epoch_alone():
    torch.manual_seed(1)
    first = batches.order(100, 5, 2)
    torch.manual_seed(2)
    assert torch.equal(first, batches.order(100, 5, 2))
    others = [batches.order(100, 5, 3), batches.order(100, 6, 2), batches.order(100, 2, 5)]
    assert not any(torch.equal(first, other) for other in others)


def test_batches_cannot_be_divided_for_tuning(tmp_path):
    given = spec_of("LoaderWithoutValid", purpose="tune", trial=0)
    with pytest.raises(LabError, match="must also return a 'valid' split"):
        process.run(given, tmp_path)


class TestOptimizers:
    @pytest.mark.parametrize("name", METHODS)
    def test_every_method_of_the_zoo_trains(self, name, tmp_path):
        record = process.run(spec_of(optimizer=name, epochs=1), tmp_path)
        assert record.done["status"] == "finished"

    @pytest.mark.parametrize(
        ("name", "options", "kind"),
        [
            ("torch:AdamW", {}, torch.optim.AdamW),
            ("torch.optim:NAdam", {"lr": 1e-3}, torch.optim.NAdam),
        ],
    )
    def test_torch_and_modules(self, name, options, kind):
        built = optimizers.build(
            name, [torch.nn.Parameter(torch.zeros(1))], optimizer_options.complete(name, options)
        )
        assert type(built) is kind

    def test_a_second_name_takes_other_options(self, tmp_path):
        plain = process.run(spec_of(optimizer="adaxw"), tmp_path)
        same = process.run(spec_of(optimizer="adaxw@again"), tmp_path)
        slow = process.run(spec_of(optimizer="adaxw@slow", options={"betas": [0.9, 0.5e-2]}), tmp_path)
        assert same.done["model_sha256"] == plain.done["model_sha256"] != slow.done["model_sha256"]

    def test_an_edited_optimizer_is_another_run(self, tmp_path):
        file = tmp_path / "mine.py"
        file.write_text(Path(TINY).read_text())
        before = spec_of(optimizer=f"{file}:PlainSGD", options={"lr": 0.1})
        file.write_text(Path(TINY).read_text() + "\n# edited\n")
        assert spec.digest(spec_of(optimizer=f"{file}:PlainSGD", options={"lr": 0.1})) != spec.digest(before)

    def test_the_users_own_file(self, tmp_path):
        record = process.run(spec_of(optimizer=f"{TINY}:PlainSGD", options={"lr": 0.1}), tmp_path)
        assert record.done["status"] == "finished"

    @pytest.mark.parametrize(
        ("name", "options", "words"),
        [
            ("adamx", {}, "unknown optimizer 'adamx'; known are sgdm, adagrad"),
            ("adaxw@", {}, "a second name follows the @"),
            ("adamx@a", {}, "unknown optimizer 'adamx'"),
            ("torch:AdamX", {}, "unknown optimizer in torch 'AdamX'; known are"),
            ("nowhere_at_all:X", {}, "cannot be imported"),
            ("collections:OrderedDict", {}, "must be a subclass of torch.optim.Optimizer"),
            (f"{TINY}:PlainSGD", {}, "has no default lr; give one with --set"),
            ("adaxw", {"lr": -1.0}, "lr=-1.0: must be > 0"),
            ("adaxw", {"wd": 0.1}, "wd"),
            ("adaxw", {"weight_decay": -0.1}, "weight_decay=-0.1: must be >= 0"),
            ("torch:SGD", {"momentun": 0.9}, "momentun"),
        ],
    )
    def test_bad_input_is_one_line(self, name, options, words):
        with pytest.raises(LabError) as caught:
            optimizer_options.check(name, optimizer_options.complete(name, options))
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 2


def test_a_metric_of_the_wrong_shape_is_refused(tmp_path):
    """`argmax(1, keepdim=True) == y` compares every example with every label, and its mean looks like an accuracy."""
    file = tmp_path / "wrong.py"
    file.write_text(
        "import torch\n"
        "class Wrong:\n"
        "    metric, higher_is_better, epochs, batch_size = 'accuracy', True, 1, 8\n"
        "    def data(self):\n"
        "        x, y = torch.randn(16, 3), torch.arange(16) % 2\n"
        "        return {'train': (x, y), 'test': (x, y)}\n"
        "    def model(self): return torch.nn.Linear(3, 2)\n"
        "    def loss(self, model, batch):\n"
        "        x, y = batch\n"
        "        out = model(x)\n"
        "        return torch.nn.functional.cross_entropy(out, y), out.argmax(1, keepdim=True) == y\n"
    )
    from adaxlab import spec
    from adaxlab.errors import RunError
    from adaxlab.execute import process

    given = spec.make(
        study="s", task=f"{file}:Wrong", optimizer="adamw", options={}, epochs=1, batch_size=8, seed=0
    )
    with pytest.raises(RunError, match=r"accuracy of the first batch has shape \(8, 8\).*8 examples"):
        process.run(given, tmp_path / "runs")


def test_a_class_that_needs_groups_is_built_on_the_tasks_model(tmp_path):
    """Not on a single number: it may ask for matrices, and for groups that only the task can give."""
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class Two(torch.optim.SGD):\n"
        "    def __init__(self, params, lr=0.1):\n"
        "        params = list(params)\n"
        "        assert len(params) == 2 and all(p.ndim == 2 for p in params[0]['params'])\n"
        "        super().__init__(params, lr=lr)\n"
    )
    optimizer_options.check(f"{tmp_path / 'mine.py'}:Two", {"lr": 0.1})
    with pytest.raises(LabError, match="momentun"):
        optimizer_options.complete(f"{tmp_path / 'mine.py'}:Two", {"momentun": 0.9})
