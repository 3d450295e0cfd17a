"""DeepLab-ASPP and its pretrained weights: counted by hand, and against plain convolutions and norms."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from adaxlab.errors import LabError
from adaxlab.models import deeplab as model
from adaxlab.models import pretrained as weights
from adaxlab.models.deeplab import BLOCKS, RATES, STYLES, Backbone, deeplab, interpolation

TINY = dict(blocks=BLOCKS["tiny"], width=8)


def stir(net, seed=0):
    """Norms that do something, so that a test can see them."""
    generator = torch.Generator().manual_seed(seed)
    for name, buffer in net.named_buffers():
        if name.endswith(".scale") and "." in name:
            buffer.copy_(0.3 + torch.rand(buffer.shape, generator=generator) * 0.4)
        if name.endswith(".shift"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.2)
    return net


# -- the network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "classes"), [("resnet50", 11), ("resnet101", 21)])
def test_parameters_are_counted_by_hand(name, classes):
    net = deeplab(name, classes)
    count = 3 * 64 * 49
    narrow = 64
    for stage, blocks in enumerate({"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}[name]):
        width = 64 * 2**stage
        count += narrow * 4 * width  # the projection of the first block
        for _ in range(blocks):
            count += narrow * width + 9 * width * width + width * 4 * width
            narrow = 4 * width
    head = len(RATES) * (9 * 2048 * classes + classes)
    assert sum(p.numel() for p in net.backbone.parameters()) == count
    assert sum(p.numel() for p in net.aspp.parameters()) == head
    assert sum(p.numel() for p in net.parameters()) == count + head
    assert (
        count
        == {"resnet50": 25_557_032 - 2_049_000 - 53_120, "resnet101": 44_549_160 - 2_049_000 - 105_344}[name]
    )


@pytest.mark.parametrize("style", STYLES)
def test_every_fourth_place_of_the_dilated_network_is_the_strided_one(style):
    torch.manual_seed(0)
    strided = stir(Backbone(style=STYLES[style], output_stride=32, **TINY))
    dilated = Backbone(style=STYLES[style], **TINY)
    dilated.load_state_dict(strided.state_dict())
    x = torch.randn(2, 3, 97, 130)
    coarse, fine = strided(x), dilated(x)
    assert fine.shape[-2:] == (13, 17)
    assert coarse.abs().mean() > 0.1
    torch.testing.assert_close(fine[:, :, ::4, ::4], coarse, rtol=1e-4, atol=1e-5)


def test_styles_stride_in_different_places():
    """The same weights under the other style give something else."""
    torch.manual_seed(0)
    a, b = (Backbone(style=STYLES[style], **TINY) for style in ("torch", "caffe"))
    b.load_state_dict(a.state_dict())
    x = torch.randn(1, 3, 65, 65)
    assert (a(x) - b(x)).abs().mean() > 1e-2 * a(x).abs().mean()


def test_the_head_is_a_sum_over_four_dilations():
    torch.manual_seed(1)
    head = model.Aspp(5, 3).double()
    for branch in head.branches:
        torch.nn.init.normal_(branch.bias)
    x = torch.randn(1, 5, 9, 40, dtype=torch.float64)
    row, column = 4, 17
    expected = torch.zeros(3, dtype=torch.float64)
    for branch, rate in zip(head.branches, (6, 12, 18, 24), strict=True):
        expected += branch.bias
        for i in (-1, 0, 1):
            for j in (-1, 0, 1):
                y, z = row + i * rate, column + j * rate
                if 0 <= y < 9 and 0 <= z < 40:
                    expected += branch.weight[:, :, i + 1, j + 1] @ x[0, :, y, z]
    torch.testing.assert_close(head(x)[0, :, row, column], expected)


@pytest.mark.parametrize("size", [(33, 41), (40, 48), (37, 50), (8, 1)])
def test_scores_between_cells_lie_on_lines(size):
    torch.manual_seed(0)
    net = stir(deeplab("tiny", 4)).eval()
    pixels = torch.rand(2, 3, *size) * 255
    scores, cells = net(pixels), net.cells(pixels)
    assert scores.shape == (2, 4, *size)
    height, width = (8 * (side - 1) + 1 for side in cells.shape[-2:])
    assert 0 <= height - size[0] < 8
    plain = F.interpolate(cells, (height, width), mode="bilinear", align_corners=True)
    torch.testing.assert_close(scores, plain[..., : size[0], : size[1]], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(scores[..., ::8, ::8], cells[..., : -(-size[0] // 8), : -(-size[1] // 8)])
    assert interpolation(size[0], cells.shape[-2], torch.device("cpu")).sum(1).sub(1).abs().max() < 1e-6


def test_autocast_is_bfloat16_between_float32_ends():
    torch.manual_seed(0)
    net = stir(deeplab("tiny", 4))
    pixels = torch.rand(1, 3, 41, 41) * 255
    low, full = net(pixels, autocast=True), net(pixels)
    assert low.dtype == torch.float32
    off = (low - full).abs().max() / full.abs().max()
    assert 1e-5 < off < 5e-2
    low.square().mean().backward()
    assert {p.grad.dtype for p in net.parameters()} == {torch.float32}


def test_the_input_is_pixels_minus_the_styles_mean():
    net = deeplab("tiny", 4, "keras")
    stem, seen = net.backbone, []
    stem.forward = lambda x: seen.append(x) or torch.zeros(1, 256, 2, 2)  # type: ignore[method-assign]
    net.cells(torch.tensor([200.0, 100.0, 50.0]).view(1, 3, 1, 1).expand(1, 3, 9, 9))
    expected = torch.tensor([200 - 123.68, 100 - 116.779, 50 - 103.939])
    torch.testing.assert_close(seen[0][0, :, 4, 4], expected)


def test_norms_are_frozen():
    torch.manual_seed(0)
    net = stir(deeplab("tiny", 4))
    before = {name: value.clone() for name, value in net.named_buffers()}
    assert {name.rpartition(".")[2] for name, _ in net.named_parameters()} == {"weight", "bias"}
    assert all(p.dim() == 4 or name.startswith("aspp") for name, p in net.named_parameters())
    optimizer = torch.optim.SGD(net.parameters(), 1e-3, weight_decay=0.1)
    pixels = torch.rand(2, 3, 33, 33) * 255
    torch.testing.assert_close(net.train()(pixels), net.eval()(pixels), rtol=0, atol=0)
    net.train()(pixels).square().mean().backward()
    optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in net.named_buffers())
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())


def test_what_is_not_known_is_said():
    with pytest.raises(ValueError, match="backbone='resnet34': known are resnet50, resnet101, tiny"):
        deeplab("resnet34", 3)
    with pytest.raises(ValueError, match="style='jax': known are torch, caffe, keras"):
        deeplab("tiny", 3, "jax")


# -- weights --------------------------------------------------------------------------------------------------------


def norms(seed=0, bias=False):
    """A state dict of the tiny backbone as torchvision would write it: BatchNorm statistics, a classifier."""
    generator = torch.Generator().manual_seed(seed)

    def numbers(*shape):
        return torch.randn(*shape, generator=generator)

    state = {}
    net = Backbone(style=STYLES["torch"], **TINY)
    for name, module in net.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            state[f"{name}.weight"] = numbers(*module.weight.shape) * 0.1
            if bias:
                state[f"{name}.bias"] = numbers(len(module.weight)) * 0.1
        elif isinstance(module, model.FrozenNorm):
            n = len(module.scale)
            state[f"{name}.weight"], state[f"{name}.bias"] = 1 + 0.2 * numbers(n), 0.1 * numbers(n)
            state[f"{name}.running_mean"], state[f"{name}.running_var"] = (
                0.1 * numbers(n),
                0.02 + 0.1 * numbers(n).abs(),
            )
            state[f"{name}.num_batches_tracked"] = torch.tensor(3)
    state["fc.weight"], state["fc.bias"] = numbers(10, 256), numbers(10)
    return state


def unfolded(state, x, style):
    """The tiny network by convolutions, F.batch_norm and nothing of the model's code."""

    def unit(x, conv, norm, stride=1, pad=0, dilation=1):
        y = F.conv2d(x, state[f"{conv}.weight"], state.get(f"{conv}.bias"), stride, pad, dilation)
        names = ("running_mean", "running_var", "weight", "bias")
        return F.batch_norm(y, *(state[f"{norm}.{k}"] for k in names), False, 0.1, style.eps)

    x = F.max_pool2d(F.relu(unit(x, "conv1", "bn1", 2, 3)), 3, 2, 1)
    for stage, (stride, dilation) in enumerate(((1, 1), (2, 1), (1, 2), (1, 4)), 1):
        at = f"layer{stage}.0"
        inner = dilation if style.stride_first else max(1, dilation // 2)
        first, second = (stride, 1) if style.stride_first else (1, stride)
        y = F.relu(unit(x, f"{at}.conv1", f"{at}.bn1", first))
        y = F.relu(unit(y, f"{at}.conv2", f"{at}.bn2", second, inner, inner))
        y = unit(y, f"{at}.conv3", f"{at}.bn3")
        x = F.relu(y + unit(x, f"{at}.downsample.0", f"{at}.downsample.1", stride))
    return x


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("bias", [False, True])
def test_folded_norms_are_the_norms(style, bias, tmp_path):
    state, chosen = norms(bias=bias), STYLES[style]
    torch.save(state, tmp_path / "w.pth")
    net = deeplab("tiny", 4, style)
    report = weights.load(net, tmp_path / "w.pth")
    assert (report.backbone, report.head, report.left_out) == (
        len(net.backbone.state_dict()),
        0,
        ("fc.weight", "fc.bias"),
    )
    x = torch.randn(2, 3, 65, 65, dtype=torch.float64)
    ours = net.double().backbone(x)
    wide = {name: value.double() for name, value in state.items()}
    x = x.flip(1) if chosen.bgr else x
    theirs = unfolded(wide, x, chosen)
    off = (ours - theirs).abs().max() / theirs.abs().max()
    other = unfolded(wide, x, STYLES["keras" if style != "keras" else "caffe"])
    seen = (other - theirs).abs().max() / theirs.abs().max()
    assert off < 1e-5  # what is folded is float32
    assert seen > 100 * off  # another eps or another stride is seen


def kazuto(name):
    """torchvision's name as the other common reproduction has it."""
    parts = name.split(".")
    if parts[0] in ("conv1", "bn1"):
        return f"base.layer1.conv1.{'conv' if parts[0] == 'conv1' else 'bn'}.{parts[1]}"
    if not parts[0].startswith("layer"):
        return name
    where = f"base.layer{int(parts[0][5]) + 1}.block{int(parts[1]) + 1}"
    if parts[2] == "downsample":
        return f"{where}.shortcut.{'conv' if parts[3] == '0' else 'bn'}.{parts[4]}"
    return f"{where}.{('reduce', 'conv3x3', 'increase')[int(parts[2][-1]) - 1]}.{parts[2][:-1]}.{parts[3]}"


SPELLINGS = {
    "torchvision": lambda name: name,
    "data parallel": lambda name: f"module.{name}",
    "Scale": lambda name: f"module.Scale.{name}".replace("aspp.branches", "layer5.conv2d_list"),
    "blocks": lambda name: kazuto(name).replace("aspp.branches.", "base.aspp.c"),
    "torchvision's own DeepLab": lambda name: f"backbone.{name}",
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_other_names_of_the_same_weights(spelling, wrapped, tmp_path):
    state = norms()
    head = deeplab("tiny", 4).aspp.state_dict()
    state |= {f"aspp.{name}": torch.full_like(value, 0.25) for name, value in head.items()}
    renamed = {SPELLINGS[spelling](name): value for name, value in state.items()}
    torch.save({"state_dict": renamed} if wrapped else renamed, tmp_path / "w.pth")
    net, plain = deeplab("tiny", 4), deeplab("tiny", 4)
    report = weights.load(net, tmp_path / "w.pth")
    folded = weights.fold(state, STYLES["torch"])
    plain.backbone.load_state_dict({k: v for k, v in folded.items() if not k.startswith(("fc", "aspp"))})
    assert report.head == 8
    assert all(
        torch.equal(a, b) for a, b in zip(net.backbone.parameters(), plain.backbone.parameters(), strict=True)
    )
    assert all((p == 0.25).all() for p in net.aspp.parameters())
    other = deeplab("tiny", 5)  # another number of classes: a head from scratch, and the report says so
    text = str(weights.load(other, tmp_path / "w.pth"))
    assert "head: from scratch; left out: " in text
    assert "aspp.branches.0.weight" in text or "fc.weight" in text


def keras(state, folder):
    """Write a state dict as Keras for TensorFlow.js would: its names, HWIO, in shards of 1000 bytes."""
    manifest, raw = [], b""
    fields = {
        "weight": "gamma",
        "bias": "beta",
        "running_mean": "moving_mean",
        "running_var": "moving_variance",
    }
    for name, value in state.items():
        layer, _, field = name.rpartition(".")
        if field == "num_batches_tracked":
            continue
        norm = "bn" in layer or layer.endswith("downsample.1")
        if layer in ("conv1", "bn1", "fc"):
            place = {"conv1": "conv1", "bn1": "bn_conv1", "fc": "fc1000"}[layer]
        else:
            stage, block, part = layer.split(".", 2)
            branch = "1" if part.startswith("downsample") else "2" + "abc"[int(part[-1]) - 1]
            place = f"{'bn' if norm else 'res'}{int(stage[5]) + 1}{'abcdef'[int(block)]}_branch{branch}"
        kind = fields[field] if norm else {"weight": "kernel", "bias": "bias"}[field]
        array = value.permute(2, 3, 1, 0) if value.dim() == 4 else value.T if value.dim() == 2 else value
        array = np.ascontiguousarray(array.numpy(), dtype="<f4")
        manifest.append({"name": f"{place}/{kind}", "shape": list(array.shape), "dtype": "float32"})
        raw += array.tobytes()
    paths = [f"shard{i}.bin" for i in range(-(-len(raw) // 100_000))]
    for i, path in enumerate(paths):
        (folder / path).write_bytes(raw[100_000 * i : 100_000 * (i + 1)])
    (folder / "model.json").write_text(
        json.dumps({"weightsManifest": [{"paths": paths, "weights": manifest}]})
    )
    return folder


def test_keras_weights_are_decoded(tmp_path):
    state = norms(bias=True)
    keras(state, tmp_path)
    found = weights.read(tmp_path)
    wanted = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    assert set(found) == set(wanted)
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    assert weights.style_of(tmp_path) == "keras"
    net = deeplab("tiny", 4, "keras")
    weights.load(net, tmp_path)
    x = torch.randn(1, 3, 33, 33)
    expected = unfolded(state, x.flip(1), STYLES["keras"])
    assert (net.backbone(x) - expected).abs().max() < 1e-4 * expected.abs().max()


def _without(state, name):
    return {key: value for key, value in state.items() if key != name}


WRONG = {
    "a missing file": (None, "no such file; name a .pth file"),
    "no state dict": ([1, 2], "contains list, not a state dict"),
    "no tensors": ({"a": 1}, "contains dict, not a state dict"),
    "a missing norm": (_without(norms(), "layer3.0.bn2.running_var"), "lacks 2 of the backbone's 51 tensors"),
    "a missing convolution": (_without(norms(), "conv1.weight"), "such as conv1.weight"),
    "another width": (
        {**norms(), "layer1.0.conv2.weight": torch.zeros(8, 9, 3, 3)},
        "is it for this backbone",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_weights_are_named_and_nothing_is_taken(what, tmp_path):
    content, message = WRONG[what]
    path = tmp_path / "w.pth"
    if content is not None:
        torch.save(content, path)
    net = deeplab("tiny", 4)
    before = [p.clone() for p in net.parameters()]
    with pytest.raises(LabError) as caught:
        weights.load(net, path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


class Evil:
    def __reduce__(self):
        return (print, ("run",))


def test_a_file_that_would_run_code_or_is_damaged_is_not_opened(tmp_path, capsys):
    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "text.pth").write_text("hello")  # torch.load ends in a KeyError
    for name in ("evil.pth", "cut.pth", "text.pth"):
        with pytest.raises(LabError, match=f"{name}: cannot be read as a state dict"):
            weights.read(tmp_path / name)
    assert capsys.readouterr().out == ""
    keras(norms(), tmp_path)
    (tmp_path / "shard0.bin").write_bytes(b"\0" * 99_999)
    with pytest.raises(LabError, match=r"the shards have \d+ bytes, not \d+; download"):
        weights.read(tmp_path)
    (tmp_path / "shard0.bin").unlink()
    with pytest.raises(LabError, match=r"shard0.bin: is missing or cannot be read"):
        weights.read(tmp_path)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(LabError, match=r"is not a TensorFlow\.js model"):
        weights.read(tmp_path)
