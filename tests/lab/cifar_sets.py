"""A small CIFAR-10 look-alike, written in each of the layouts that the real set comes in."""

from __future__ import annotations

import json
import pickle

import numpy as np
from PIL import Image

from adaxlab.stacked.plain import PlainNetwork


class Float64(PlainNetwork):
    """The plain network in float64: what two ways of computing the same steps leave between them stays below 1e-10."""

    def __init__(self, nets, device):
        super().__init__(nets, device)
        self.parameters, self.gradient = self.parameters.double(), self.gradient.double()
        self.running = self.running.double()
        self._net.double().register_forward_pre_hook(lambda _, given: (given[0].double(),))


def make(train=50, test=20, seed=0):
    """Images whose class shows in their colour under noise, so that a net can learn it: (images, labels) twice."""
    rng = np.random.default_rng(seed)
    colours = rng.integers(40, 216, (10, 1, 1, 3))
    out = []
    for n in (train, test):
        labels = (np.arange(n) % 10).astype(np.uint8)
        noise = rng.normal(0, 25, (n, 32, 32, 3))
        out += [np.clip(colours[labels] + noise, 0, 255).astype(np.uint8), labels]
    return tuple(out)


def sheets(folder, data):
    images, labels, test, test_labels = data
    for i, part in enumerate(np.split(images, 5), 1):
        Image.fromarray(part.reshape(len(part), 1024, 3)).save(folder / f"data_batch_{i}.png")
    Image.fromarray(test.reshape(len(test), 1024, 3)).save(folder / "test_batch.png")
    (folder / "train_lables.json").write_text(json.dumps(labels.tolist()))
    (folder / "test_lables.json").write_text(json.dumps(test_labels.tolist()))


def _parts(data):
    images, labels, test, test_labels = data
    parts = zip(np.split(images, 5), np.split(labels, 5), strict=True)
    yield from ((f"data_batch_{i}", x, y) for i, (x, y) in enumerate(parts, 1))
    yield "test_batch", test, test_labels


def _planes(images):
    """Row by row: 1024 red, 1024 green, 1024 blue bytes."""
    return np.stack([np.concatenate([image[:, :, c].ravel() for c in range(3)]) for image in images])


def binary(folder, data):
    for name, x, y in _parts(data):
        (folder / f"{name}.bin").write_bytes(
            b"".join(
                bytes([label]) + row.tobytes() for label, row in zip(y.tolist(), _planes(x), strict=True)
            )
        )


def python(folder, data):
    for name, x, y in _parts(data):
        batch = {
            b"batch_label": b"x",
            b"labels": y.tolist(),
            b"data": _planes(x),
            b"filenames": [b"a.png"] * len(y),
        }
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def torchvision(folder, data):
    (folder / "cifar-10-batches-py").mkdir()
    python(folder / "cifar-10-batches-py", data)


def package(folder, data):
    (folder / "package").mkdir()
    sheets(folder / "package", data)


LAYOUTS = {f.__name__: f for f in (sheets, binary, python, torchvision, package)}
