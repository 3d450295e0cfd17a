"""Train a character-level GPT of nanoGPT's size (6 layers, width 384, 10.7 million parameters) with AdaX-W.

python examples/train_gpt.py --text shakespeare.txt
python examples/train_gpt.py --steps 200 --layers 2 --heads 4 --width 64 --context 64      # two minutes on a CPU

Without --text it learns the source of Python's standard library. On a GPU it trains in bfloat16. With --checkpoint
the same command resumes where it was interrupted.
"""

import argparse
import contextlib
import math
import os
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import adaxopt


class Block(nn.Module):
    """Pre-norm attention and a GELU layer."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Scores of the next character; embedding and output layer share their weight."""

    def __init__(self, vocabulary, context, layers, heads, width):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                residual = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if residual else 0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1], device=tokens.device))
        return F.linear(self.norm(self.blocks(x)), self.token.weight)


def read(path):
    """The text's characters as numbers, split 9 to 1, and the alphabet."""
    if path:
        text = Path(path).read_text(encoding="utf-8")
    else:
        library = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = "\n".join(file.read_text(encoding="utf-8", errors="ignore") for file in library)
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    data = torch.tensor([number[character] for character in text], dtype=torch.long)
    return data[: len(data) * 9 // 10], data[len(data) * 9 // 10 :], alphabet


def batch(data, size, context, device, generator):
    """Windows at random places: inputs, and the same moved by one character."""
    begin = torch.randint(len(data) - context, (size, 1), generator=generator)
    windows = data[begin + torch.arange(context + 1)].to(device)
    return windows[:, :-1], windows[:, 1:]


def arguments(given):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="a UTF-8 text file")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--lr", type=float, default=1e-3, help="AdamW's usual lr is a good start for AdaX-W")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--evaluate-every", type=int, default=250)
    parser.add_argument("--checkpoint", help="a file to save to and resume from")
    parser.add_argument("--stop-at", type=int, help="stop here, to resume later")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


def main(given=None):
    """Returns the loss on held-out text after training, in nats per character."""
    o = arguments(given)
    torch.manual_seed(o.seed)
    generator = torch.Generator().manual_seed(o.seed)
    train, valid, alphabet = read(o.text)
    model = Gpt(len(alphabet), o.context, o.layers, o.heads, o.width).to(o.device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M parameters, {len(alphabet)} characters")

    optimizer = adaxopt.AdaXW(
        adaxopt.param_groups(model, weight_decay=o.weight_decay),  # no decay for norms
        lr=o.lr,
        total_steps=o.steps,  # b2 = 3/steps
    )
    warmup = max(1, o.steps // 50)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda t: min((t + 1) / warmup, 0.1 + 0.45 * (1 + math.cos(math.pi * min(1, t / o.steps)))),
    )
    half = torch.autocast(o.device, torch.bfloat16) if o.device == "cuda" else contextlib.nullcontext()

    def loss_on(data, source):
        inputs, targets = batch(data, o.batch, o.context, o.device, source)
        with half:
            return F.cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten())

    @torch.no_grad()
    def evaluate():
        source = torch.Generator().manual_seed(1)  # the same windows every time
        return sum(loss_on(valid, source).item() for _ in range(10)) / 10

    step = 0
    if o.checkpoint and os.path.exists(o.checkpoint):
        saved = torch.load(o.checkpoint, map_location=o.device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        schedule.load_state_dict(saved["schedule"])
        generator.set_state(saved["generator"].cpu())
        step = saved["step"]
    end = min(o.steps, o.stop_at or o.steps)
    while step < end:
        if step % o.evaluate_every == 0:
            print(f"step {step:5}  held-out loss {evaluate():.4f}")
        loss = loss_on(train, generator)
        loss.backward()
        adaxopt.clip_grad_norm_(model.parameters(), 1.0)  # AdaX does not forget outliers
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        step += 1
        if o.checkpoint and (step % o.evaluate_every == 0 or step == end):
            parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
            saved = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**saved, "generator": generator.get_state(), "step": step}, f"{o.checkpoint}.new")
            os.replace(f"{o.checkpoint}.new", o.checkpoint)
    final = evaluate()
    print(f"step {step:5}  held-out loss {final:.4f}")
    return final


if __name__ == "__main__":
    main()
