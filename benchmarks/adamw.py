"""AdamW by several libraries on one GPU: time of a step, state per parameter, and whole training steps.

    PYTHONPATH=src python benchmarks/adamw.py [--rounds 21] [--models "GPT-2 small"] [--out records/adamw_step.json]

Each library at its fastest setting for float32 parameters; those with low-precision state are rows of their own,
because they compute something else. Libraries that are not installed are named in the record. "fixed": gradients at the
same addresses every step; "fresh": other tensors every step, the time of handing them over taken off where the host
bounds the step. "training" is forward, backward, step and zero_grad under bf16 autocast, at usual batch sizes: what a
user gains.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from gpu import Fresh, captured
from gpu_measure import alternate, environment, gradient
from shapes import ADAMW_MODELS
from torch import Tensor, nn
from torch.nn import functional as F

import adaxopt

Make = Callable[[list[nn.Parameter]], Any]
REFERENCE, OURS = "torch AdamW, fused", "adaxopt AdamW"
OPTIONS: dict[str, Any] = {"lr": 1e-6, "weight_decay": 0.01}
STEPS = {"64M": 30, "GPT-2 small": 30, "GPT-2 medium": 10, "ViT-S": 100, "ResNet-50": 100}


def _optimi(params: list[nn.Parameter]) -> Any:
    from optimi import AdamW

    return AdamW(params, **OPTIONS, triton=True)


def _flash(params: list[nn.Parameter]) -> Any:
    from flashoptim import FlashAdamW

    return FlashAdamW(params, **OPTIONS, master_weight_bits=None)  # float32 weights need no correction bits


def _torchao(params: list[nn.Parameter]) -> Any:
    from torchao.optim import AdamW8bit

    return AdamW8bit(params, **OPTIONS)


def _bitsandbytes(bits: int) -> Make:
    def make(params: list[nn.Parameter]) -> Any:
        import bitsandbytes

        return (bitsandbytes.optim.AdamW8bit if bits == 8 else bitsandbytes.optim.AdamW32bit)(
            params, **OPTIONS
        )

    return make


# row: (package that it needs, optimizer)
ROWS: dict[str, tuple[str, Make]] = {
    REFERENCE: ("torch", lambda p: torch.optim.AdamW(p, **OPTIONS, fused=True)),
    "torch AdamW, default": ("torch", lambda p: torch.optim.AdamW(p, **OPTIONS)),
    OURS: ("adaxopt", lambda p: adaxopt.AdamW(p, **OPTIONS)),
    "adaxopt AdamW, bf16 state": (
        "adaxopt",
        lambda p: adaxopt.AdamW(p, **OPTIONS, state_dtype=torch.bfloat16),
    ),
    "optimi AdamW, Triton": ("optimi", _optimi),
    "FlashOptim AdamW, 8-bit state": ("flashoptim", _flash),
    "torchao AdamW, 8-bit state": ("torchao", _torchao),
    "bitsandbytes AdamW, 32-bit state": ("bitsandbytes", _bitsandbytes(32)),
    "bitsandbytes AdamW, 8-bit state": ("bitsandbytes", _bitsandbytes(8)),
}
TRAINED = (REFERENCE, "torch AdamW, default", OURS)


def installed() -> tuple[dict[str, Make], dict[str, str], list[str]]:
    """Rows that can be timed, the versions of their packages, and the packages that are not there."""
    there = {name for name, _ in ROWS.values() if importlib.util.find_spec(name) is not None}
    versions = {name: _version(name) for name in sorted(there)}
    missing = sorted({name for name, _ in ROWS.values()} - there)
    return {row: make for row, (name, make) in ROWS.items() if name in there}, versions, missing


def _version(name: str) -> str:
    try:
        return importlib.metadata.version({"optimi": "torch-optimi"}.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return "source"


def state_bytes(optimizer: Any) -> int:
    """Bytes of all tensors in the state, those inside tensor subclasses and a library's own objects too."""

    def size(t: Any) -> int:
        if hasattr(t, "__tensor_flatten__"):
            return sum(size(getattr(t, name)) for name in t.__tensor_flatten__()[0])
        if isinstance(t, Tensor):
            return t.numel() * t.element_size()
        return sum(map(size, vars(t).values())) if hasattr(t, "__dict__") else 0

    return sum(size(t) for entry in optimizer.state.values() for t in entry.values())


def measure(model: str, makes: dict[str, Make], rounds: int) -> list[dict[str, Any]]:
    """Every row on one model's shapes, alternating; a library that fails is a row that says so."""
    shapes = ADAMW_MODELS[model]()
    params = [nn.Parameter(torch.randn(shape, device="cuda")) for shape in shapes]
    for p in params:
        p.grad = gradient(p)
    count = sum(map(math.prod, shapes))
    steps: dict[str, Callable[[], Any]] = {}
    rows: list[dict[str, Any]] = []
    sizes: dict[str, float] = {}
    for name, make in makes.items():
        try:
            optimizer = make(params)
            optimizer.step()
            torch.cuda.synchronize()
        except Exception as error:  # a library's failure is a result too
            rows.append(
                {"model": model, "row": name, "failed": f"{type(error).__name__}: {str(error)[:200]}"}
            )
            continue
        steps[name], sizes[name] = optimizer.step, state_bytes(optimizer) / count
    found = [("fixed", name, result) for name, result in alternate(steps, rounds, STEPS[model]).items()]
    moving = {name: Fresh(params, step) for name, step in steps.items()}
    graphs = {
        REFERENCE: captured(torch.optim.AdamW(params, **OPTIONS, fused=True, capturable=True)),
        OURS: captured(adaxopt.AdamW(params, **OPTIONS, capturable=True)),
    }
    replayed = {name: result["ms"] for name, result in alternate(graphs, rounds, STEPS[model]).items()}
    for name, result in alternate(moving, rounds, STEPS[model]).items():
        found.append(("fresh", name, moving[name].alone(result, replayed.get(name, 0.0))))
    for gradients, name, result in found:
        reference = next(r["ms"] for g, n, r in found if (g, n) == (gradients, REFERENCE))
        shared = {"tensors": len(shapes), "numbers": count, "state_bytes": sizes[name]}
        speedup = reference / result["ms"]
        rows.append(
            {"model": model, "row": name, "gradients": gradients, **result, **shared, "speedup": speedup}
        )
    return rows


class Transformer(nn.Module):
    """GPT-2 small or ViT-S: pre-norm layers, GELU, a feed-forward net of four times the width."""

    def __init__(self, width: int, layers: int, heads: int, *, words: int = 0) -> None:
        super().__init__()
        self.words = words
        self.first: nn.Module = nn.Embedding(words, width) if words else nn.Conv2d(3, width, 16, 16)
        self.place = nn.Parameter(torch.zeros(1, 1024 if words else 196, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.head = None if words else nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) if self.words else self.first(x).flatten(2).transpose(1, 2)
        x = x + self.place[:, : x.shape[1]]
        if self.head is not None:
            return self.head(self.layers(x).mean(1))
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        return F.linear(self.layers(x, mask=mask, is_causal=True), self.first.weight)  # type: ignore[arg-type]


def train(name: str, rounds: int) -> list[dict[str, Any]]:
    """Whole training steps of one model with several optimizers, each with its own copy of the model."""
    if name == "GPT-2 small":
        batch, made = 16, lambda: Transformer(768, 12, 12, words=50257)
        x = torch.randint(0, 50257, (batch, 1024), device="cuda")
        y = x.roll(-1, 1)
    else:
        batch, made = 256, lambda: Transformer(384, 12, 6)
        x = torch.randn(batch, 3, 224, 224, device="cuda")
        y = torch.randint(0, 1000, (batch,), device="cuda")

    def stepping(make: Make) -> Callable[[], None]:
        torch.manual_seed(0)
        model = made().cuda()
        optimizer = make(list(model.parameters()))

        def step() -> None:
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    makes = {row: stepping(ROWS[row][1]) for row in TRAINED}
    results = alternate(makes, rounds, 5)
    reference = results[REFERENCE]["ms"]
    return [
        {"model": name, "batch": batch, "row": row, **result, "speedup": reference / result["ms"]}
        for row, result in results.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21, help="times that each row is timed, at least 2")
    parser.add_argument("--models", nargs="*", choices=list(ADAMW_MODELS), default=list(ADAMW_MODELS))
    parser.add_argument(
        "--training", nargs="*", choices=["GPT-2 small", "ViT-S"], default=["GPT-2 small", "ViT-S"]
    )
    parser.add_argument("--without", nargs="*", choices=sorted({n for n, _ in ROWS.values()}), default=[])
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("records/adamw_step.json"),
        help="models that are not measured now stay as they are in it",
    )
    arguments = parser.parse_args()
    if arguments.rounds < 2:
        parser.error(f"--rounds {arguments.rounds}: must be at least 2, for quartiles")
    if not torch.cuda.is_available():
        parser.error("no CUDA device: this measures one")
    makes, versions, missing = installed()
    makes = {row: make for row, make in makes.items() if ROWS[row][0] not in arguments.without}
    record: dict[str, Any] = {"environment": environment()}
    before = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
    record["versions"] = {**before.get("versions", {}), **versions}
    record["not_importable"] = [name for name in missing if name not in record["versions"]]
    today = {"date": record["environment"]["date"]}
    for part, now in (("rows", arguments.models), ("training", arguments.training)):
        record[part] = [row for row in before.get(part, []) if row["model"] not in now]
    for name, part, call in (
        *((m, "rows", lambda m: measure(m, makes, arguments.rounds)) for m in arguments.models),
        *((m, "training", lambda m: train(m, max(5, arguments.rounds // 2))) for m in arguments.training),
    ):
        record[part] += [{**row, **today} for row in call(name)]
        for row in record[part]:
            if row["model"] == name:
                print(part, {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
