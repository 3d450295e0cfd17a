"""Tasks for the tests: tiny, seeded, with dropout and noise so that a lost generator shows."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
)
from torch.utils.data.distributed import DistributedSampler

TINY = str(Path(__file__).resolve())
HEAD = f"""
import sys
sys.path.insert(0, {str(Path(TINY).parent)!r})
import torch
from tiny import PlainSGD, Tiny
"""


def points(n, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=generator)
    return x, (x[:, 0] * x[:, 1] > 0).long()


class Tiny:
    metric = "accuracy"
    higher_is_better = True
    epochs = 3
    batch_size = 16

    def __init__(self, rows=90, dropout=0.1):
        self.rows, self.dropout = rows, dropout

    def data(self):
        return {"train": points(self.rows, 1), "test": points(40, 2)}

    def model(self):
        return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Dropout(self.dropout), nn.Linear(12, 2))

    def loss(self, model, batch):
        x, y = batch
        out = model(x)
        return F.cross_entropy(out, y), out.argmax(1) == y


class Noisy(Dataset):
    """A Dataset whose items draw from torch's generator, as augmentation does."""

    def __init__(self, n, seed):
        self.x, self.y = points(n, seed)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i] + 0.1 * torch.randn(8), self.y[i]


class TinyDataset(Tiny):
    def data(self):
        return {"train": Noisy(self.rows, 1), "test": Noisy(40, 2)}


class TinyLoader(Tiny):
    def data(self):
        loader = DataLoader(Noisy(self.rows, 1), batch_size=16, shuffle=True)
        return {"train": loader, "valid": [points(20, 3)], "test": [points(20, 2), points(12, 4)]}


class Drawing(Sampler):
    """Draws its order from the global generator when it is told the epoch."""

    def __init__(self, n):
        self.n, self.rows = n, list(range(n))

    def set_epoch(self, epoch):
        self.rows = torch.randperm(self.n).tolist()

    def __iter__(self):
        return iter(self.rows)

    def __len__(self):
        return self.n


class Turned(IterableDataset):
    """Begins elsewhere at every epoch."""

    def __init__(self, rows):
        self.rows, self.first = rows, 0

    def set_epoch(self, epoch):
        self.first = 5 * epoch

    def __iter__(self):
        return (self.rows[(i + self.first) % len(self.rows)] for i in range(len(self.rows)))

    def __len__(self):
        return len(self.rows)


class TinySampler(Tiny):
    """Its order is a function of the epoch that something within the DataLoader is told."""

    def __init__(self, kind="sampler"):
        super().__init__()
        self.kind = kind

    def data(self):
        x = torch.arange(48.0).reshape(-1, 1).expand(-1, 8)
        rows = TensorDataset(x, (x[:, 0] % 2).long())
        torchs = DistributedSampler(rows, num_replicas=1, rank=0)
        own = RandomSampler(rows, generator=torch.Generator())
        how = {
            "sampler": {"batch_size": 16, "sampler": torchs},
            "batch sampler": {"batch_sampler": BatchSampler(torchs, 16, False)},
            "drawing": {"batch_size": 16, "sampler": Drawing(48)},
            "dataset": {"batch_size": 16},
            "own generator": {"batch_size": 16, "shuffle": True, "generator": torch.Generator()},
            "sampler's generator": {"batch_size": 16, "sampler": own},
            "its sampler's generator": {"batch_sampler": BatchSampler(own, 16, False)},
        }[self.kind]
        train = Turned(rows) if self.kind == "dataset" else rows
        return {**super().data(), "train": DataLoader(train, **how)}

    def loss(self, model, batch):
        if model.training:
            SEEN.append(batch[0][:, 0].tolist())
        return super().loss(model, batch)


SEEN = []


class TinyLoss(Tiny):
    metric = "loss"
    higher_is_better = False

    def loss(self, model, batch):
        return super().loss(model, batch)[0]


class Slow(Tiny):
    """A run of seconds, to be interrupted."""

    epochs = 40

    def loss(self, model, batch):
        time.sleep(0.02)
        return super().loss(model, batch)


class NanAtOnce(Tiny):
    def loss(self, model, batch):
        loss, right = super().loss(model, batch)
        return loss * float("nan"), right


class NanMetric(Tiny):
    def loss(self, model, batch):
        loss, right = super().loss(model, batch)
        return loss, right.float() if model.training else right.float() * float("nan")


class Explodes(Tiny):
    """A loss that grows without bound along the gradient: every method diverges."""

    def loss(self, model, batch):
        _, right = super().loss(model, batch)
        return -100 * sum((p**4).sum() for p in model.parameters()), right


class Density(Tiny):
    """The negative log-likelihood of 500 numbers: it begins near 0, and the best is below -1000."""

    metric, higher_is_better = "loss", False

    def model(self):
        return nn.Linear(8, 1, bias=True)

    def loss(self, model, batch):
        x, _ = batch
        log_sigma = model.bias + 0 * model(x).sum()
        return 500 * (log_sigma + 5e-5 * torch.exp(-2 * log_sigma)).mean()


class Spike(Tiny):
    """One training batch has a huge loss, which has no gradient."""

    size = 1e6

    def loss(self, model, batch):
        loss, right = super().loss(model, batch)
        self.calls = getattr(self, "calls", 0) + 1
        return (loss + self.size if self.calls == 3 else loss), right


class Infinite(Spike):
    size = float("inf")


class Raises(Tiny):
    def loss(self, model, batch):
        raise ValueError("the third column is empty\nand more")


class WrongShape(Tiny):
    def model(self):
        return torch.nn.Linear(1, 2)  # the data have more columns


made = Raises()


class NoMetric:
    higher_is_better = True

    def data(self): ...

    def model(self): ...


class BadFlag(Tiny):
    higher_is_better = "yes"


class BadData(Tiny):
    def data(self):
        return points(10, 1)


class BadKey(Tiny):
    def data(self):
        return {**super().data(), "dev": points(3, 1)}


class BadModel(Tiny):
    def model(self):
        return lambda x: x


class FrozenModel(Tiny):
    def model(self):
        return nn.Linear(8, 2).requires_grad_(False)


class UnevenRows(Tiny):
    def data(self):
        x, y = points(10, 1)
        return {"train": (x, y[:9]), "test": (x, y)}


class Generator(Tiny):
    def data(self):
        return {"train": (points(4, i) for i in range(3)), "test": points(4, 1)}


class LoneLoss(Tiny):
    def loss(self, model, batch):
        return super().loss(model, batch)[0]


class VectorLoss(Tiny):
    def loss(self, model, batch):
        x, y = batch
        out = model(x)
        return F.cross_entropy(out, y, reduction="none"), out.argmax(1) == y


class DetachedLoss(Tiny):
    def loss(self, model, batch):
        loss, right = super().loss(model, batch)
        return loss.detach(), right


class NumpyRows(Tiny):
    def data(self):
        return {name: tuple(t.numpy() for t in split) for name, split in super().data().items()}


class TextMetric(Tiny):
    def loss(self, model, batch):
        return super().loss(model, batch)[0], "0.5"


class NoMetricValue(Tiny):
    def loss(self, model, batch):
        return super().loss(model, batch)[0], None


class NoRows(Tiny):
    eval_batch_size = 0


class LoaderWithoutValid(TinyLoader):
    def data(self):
        data = super().data()
        del data["valid"]
        return data


class PlainSGD(torch.optim.Optimizer):
    """A user's optimizer, with a knob and no default lr."""

    def __init__(self, params, lr, half=False):
        super().__init__(params, {"lr": lr, "half": half})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] * (0.5 if group["half"] else 1.0))


def failing(path: Path) -> Path:
    """A file with the optimizer `Bad`, SGD whose third step raises."""
    path.write_text(
        "import torch\n\n\n"
        "class Bad(torch.optim.SGD):\n"
        "    steps = 0\n\n"
        "    def step(self, closure=None):\n"
        "        self.steps += 1\n"
        "        if self.steps == 3:\n"
        "            raise ArithmeticError('the third step')\n"
        "        return super().step(closure)\n"
    )
    return path


def one_line(capsys):
    """The one line of an error that a command printed."""
    err = capsys.readouterr().err
    assert err.startswith("adax: ")
    assert err.count("\n") == 1, err
    return err


def own(name, text):
    """A file of the user's own: tasks and optimizers that build on this module's."""
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(HEAD + text)
    return name
