"""Load pretrained weights into the segmentation network.

    file.pth      a state dict: of torchvision's ResNet, or of a DeepLab with one of several naming schemes
    model.json    a Keras ResNet-50 for TensorFlow.js and its shards (or the folder that contains them)

Names are converted to torchvision's (`layer3.0.conv2.weight`, `layer3.0.bn2.running_var`); norms become a scale and a
shift, which absorbs biases of convolutions; a stem for blue, green, red is converted to red, green, blue. Tensors that
the network does not have (a classifier, another head) are listed in the report; a missing tensor of the backbone is an
error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from adaxlab.errors import LabError
from adaxlab.models.deeplab import DeepLab, Style

PREFIXES = ("module.", "model.", "Scale.", "base.", "backbone.", "encoder.", "resnet.", "features.", "net.")
"""Prefixes that wrappers add to a name; removed repeatedly."""
_PARTS = {"reduce": "1", "conv3x3": "2", "increase": "3"}
_BLOCK = re.compile(r"layer([2-5])\.block(\d+)\.(reduce|conv3x3|increase|shortcut)\.(conv|bn)\.(.+)")
_HEAD = re.compile(r"(?:layer[56]\.conv2d_list\.|aspp\.c|aspp\.branches\.)(\d)\.(weight|bias)")
_KERAS = re.compile(r"(bn|res)([2-5])([a-z]|[a-z]\d+)_branch(1|2[abc])/(.+)")
_FIELDS = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
    "kernel": "weight",
    "bias": "bias",
}


@dataclass(frozen=True)
class Report:
    """The result of loading a file: number of tensors loaded into backbone and head, and names of unused tensors."""

    source: str
    backbone: int
    head: int
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        head = f"head: {self.head} tensors" if self.head else "head: from scratch"
        names = ", ".join(self.left_out[:4]) + (", ..." if len(self.left_out) > 4 else "")
        rest = f"; left out: {names} ({len(self.left_out)})" if self.left_out else ""
        return f"{self.source}: backbone: {self.backbone} tensors; {head}{rest}"


def find(path: str | Path) -> Path:
    """Return the path of the weights: `path` itself, or the model.json in that folder."""
    given = Path(path)
    for place in (
        given,
        given / "model.json",
        given / "ResNet50" / "model.json",
        given / "package" / "ResNet50" / "model.json",
    ):
        if place.is_file():
            return place
    raise LabError(
        f"weights={given}: no such file; name a .pth file, or a folder with model.json (adax data get resnet50-weights)"
    )


def style_of(path: str | Path) -> str:
    """Return the default style of a file: keras for model.json, else torch."""
    return "keras" if find(path).suffix == ".json" else "torch"


def read(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of the file by torchvision's names; names of no known scheme are kept."""
    file = find(path)
    if file.suffix == ".json":
        return read_tfjs(file)
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many types for other files: KeyError for text
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise LabError(
            f"{file}: cannot be read as a state dict ({type(error).__name__}: {line}); name another file"
        ) from error
    for key in ("state_dict", "model", "model_state_dict"):
        if isinstance(found, dict) and isinstance(found.get(key), dict):
            found = found[key]
    if not isinstance(found, dict) or not any(isinstance(value, Tensor) for value in found.values()):
        raise LabError(f"{file}: contains {type(found).__name__}, not a state dict of tensors")
    return {torchvision_name(str(key)): value for key, value in found.items() if isinstance(value, Tensor)}


def torchvision_name(name: str) -> str:
    """Convert a parameter name of a DeepLab checkpoint to torchvision's.

    >>> torchvision_name("Scale.layer1.0.conv1.weight"), torchvision_name("base.layer1.conv1.bn.running_mean")
    ('layer1.0.conv1.weight', 'bn1.running_mean')
    >>> torchvision_name("base.layer4.block23.conv3x3.bn.weight"), torchvision_name("module.layer5.conv2d_list.3.bias")
    ('layer3.22.bn2.weight', 'aspp.branches.3.bias')
    """
    changed = True
    while changed:
        changed = False
        for prefix in PREFIXES:
            if name.startswith(prefix):
                name, changed = name[len(prefix) :], True
    if name.startswith("layer1.conv1."):
        kind, _, field = name.removeprefix("layer1.conv1.").partition(".")
        return {"conv": "conv1.", "bn": "bn1."}.get(kind, name) + field
    if block := _BLOCK.fullmatch(name):
        stage, number, part, kind, field = block.groups()
        where = f"layer{int(stage) - 1}.{int(number) - 1}."
        if part == "shortcut":
            return f"{where}downsample.{'01'[kind == 'bn']}.{field}"
        return f"{where}{kind}{_PARTS[part]}.{field}"
    if head := _HEAD.fullmatch(name):
        return f"aspp.branches.{head[1]}.{head[2]}"
    return name


def read_tfjs(file: Path) -> dict[str, Tensor]:
    """Read a Keras ResNet in TensorFlow.js format: float32 shards in the order of the manifest, HWIO kernels."""
    try:
        manifest = json.loads(file.read_text())["weightsManifest"]
        entries = [entry for group in manifest for entry in group["weights"]]
        raw = b"".join((file.parent / path).read_bytes() for group in manifest for path in group["paths"])
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{file}: is not a TensorFlow.js model ({type(error).__name__}: {error})") from error
    except OSError as error:
        raise LabError(
            f"{error.filename}: is missing or cannot be read; download the weights again"
        ) from error
    wrong = [e["name"] for e in entries if e.get("dtype") != "float32" or "quantization" in e]
    size = sum(int(np.prod(e["shape"], dtype=np.int64)) for e in entries)
    if wrong or 4 * size != len(raw):
        why = f"{wrong[0]} is not float32" if wrong else f"the shards have {len(raw)} bytes, not {4 * size}"
        raise LabError(f"{file}: {why}; download the weights again")
    values, place, out = np.frombuffer(raw, dtype="<f4"), 0, {}
    for entry in entries:
        count = int(np.prod(entry["shape"], dtype=np.int64))
        value = torch.from_numpy(values[place : place + count].reshape(entry["shape"]).copy())
        place += count
        if value.dim() == 4:
            value = value.permute(3, 2, 0, 1).contiguous()
        out[keras_name(entry["name"])] = value.T.contiguous() if value.dim() == 2 else value
    return out


def keras_name(name: str) -> str:
    """Convert a Keras parameter name to torchvision's.

    >>> keras_name("res4f_branch2b/kernel"), keras_name("bn2a_branch1/moving_mean"), keras_name("fc1000/bias")
    ('layer3.5.conv2.weight', 'layer1.0.downsample.1.running_mean', 'fc.bias')
    """
    layer, _, field = name.partition("/")
    field = _FIELDS.get(field, field)
    if layer in ("conv1", "bn_conv1", "fc1000"):
        return f"{ {'conv1': 'conv1', 'bn_conv1': 'bn1', 'fc1000': 'fc'}[layer] }.{field}"
    found = _KERAS.fullmatch(name)
    if not found:
        return name
    kind, stage, block, branch, _ = found.groups()
    number = ord(block[0]) - ord("a") if len(block) == 1 else int(block[1:])
    where = f"layer{int(stage) - 1}.{number}."
    if branch == "1":
        return f"{where}downsample.{'01'[kind == 'bn']}.{field}"
    return f"{where}{'bn' if kind == 'bn' else 'conv'}{'abc'.index(branch[1]) + 1}.{field}"


def fold(found: Mapping[str, Tensor], style: Style) -> dict[str, Tensor]:
    """Return the weights with every norm as scale and shift, and with the stem for red, green, blue.

    With y = conv(x) + b:  gamma*(y - mean)/sqrt(var + eps) + beta = scale*conv(x) + shift,
    scale = gamma/sqrt(var + eps),  shift = beta + scale*(b - mean).
    """
    out = {name: value.float() for name, value in found.items() if not name.endswith("num_batches_tracked")}
    for name in [name for name in out if name.endswith(".running_var")]:
        norm = name.removesuffix(".running_var")
        gamma, beta, mean, var = (
            out.pop(f"{norm}.{key}", None) for key in ("weight", "bias", "running_mean", "running_var")
        )
        if gamma is None or beta is None or mean is None or var is None:
            continue
        scale = gamma / torch.sqrt(var + style.eps)
        bias = out.pop(f"{_conv_before(norm)}.bias", torch.zeros(()))
        out[f"{norm}.scale"], out[f"{norm}.shift"] = scale, beta + scale * (bias - mean)
    if style.bgr and "conv1.weight" in out:
        out["conv1.weight"] = out["conv1.weight"].flip(1)
    return out


def _conv_before(norm: str) -> str:
    """Return the name of the convolution before a norm: bn2 follows conv2, downsample.1 follows downsample.0."""
    return norm.removesuffix("1") + "0" if norm.endswith("downsample.1") else norm.replace("bn", "conv")


def load(net: DeepLab, path: str | Path) -> Report:
    """Load the weights of a file into the network and report which tensors were used.

    After an error the network is unchanged. A head that does not fit keeps its initialisation.
    """
    file = find(path)
    found = fold(read(file), net.style)
    state = net.backbone.state_dict()
    missing = [name for name in state if name not in found]
    if missing:
        raise LabError(
            f"{file}: lacks {len(missing)} of the backbone's {len(state)} tensors, such as {missing[0]}; "
            f"it contains {', '.join(list(found)[:3]) or 'nothing'}, ...: is it for this backbone?"
        )
    wrong = [name for name in state if found[name].shape != state[name].shape]
    if wrong:
        raise LabError(
            f"{file}: {wrong[0]} has shape {tuple(found[wrong[0]].shape)}, the backbone's is "
            f"{tuple(state[wrong[0]].shape)}: is it for this backbone?"
        )
    net.backbone.load_state_dict({name: found[name] for name in state})
    head = {f"aspp.{name}": value for name, value in net.aspp.state_dict().items()}
    fits = [name for name in head if name in found and found[name].shape == head[name].shape]
    if len(fits) == len(head):
        net.aspp.load_state_dict({name.removeprefix("aspp."): found[name] for name in fits})
    else:
        fits = []
    left = [name for name in found if name not in state and name not in fits]
    return Report(str(path), len(state), len(fits), tuple(left))
