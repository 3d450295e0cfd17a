"""The memory study: which gain k_t, and how wide is its range of learning rates. Not the paper's.

Every Adam-like method is a choice of k_t in v <- v + k_t*(g^2 - v). Here all else is AdamW's (debiased mean, plain eps,
decoupled decay with lr*weight_decay constant), and the memory is exchanged.

    screen    every memory at the same learning rates, a factor of 2 apart, one seed, on held-out data
    final     seeds that no screen has used: Fading .95 and .999, Growing b2*T = 3, and three others

The rule, written before any run of this study and amended (below):

    tolerance      0.02 nats per byte on the transformer, 1 point on CIFAR-10 (4,944 held-out images: a standard error
                   of 0.4)
    range          the rates of the grid, adjacent or not, whose result is no worse than the best of Fading .95 by more
                   than the tolerance
    the three      of the memories other than those that are kept anyway, the three with the most rates in the range on
                   the transformer; of equal ones, those with the better result at their best rate, then the order below
    edges          if Fading .95 is best at the smallest rate, or its range reaches the largest, all memories are
                   screened at the next rate on that side before anything else is decided (the rate is added to the
                   grid below, and the record goes back to records/unfinished, from which the study resumes); a memory
                   that diverges at every rate has no final runs
    at its best    each memory at the rate that its screen chose, against Fading .95 at its own: Student's paired 95%
                   interval, Holm over the memories
    wider          in the screen, the memory's range contains every rate of Fading .95's; in the final runs, at the
                   smallest rate above Fading .95's range, the memory is no worse than Fading .95 at its best rate by
                   more than the tolerance, and Fading .95 itself is worse by more than the tolerance (both
                   significantly; Holm over all memories). Rates below the grid are not compared. One diverged run is
                   outside the tolerance
    seeds          5 on the transformer; 8 on CIFAR-10, where seeds differ more
    an option      a memory that is wider, and not worse at its best, on both tasks, becomes a documented option of the
                   library on every backend. Worse: the plain 95% interval is below 0, or a run diverged; Holm's
                   adjustment would make a loss harder to see

Amended, in two commits half an hour apart, when 72 runs of the screen on CIFAR-10 and 20 of that on the transformer had
ended, before any of their results had been looked at and before the next run: a memory that only moves the range to
larger rates is not wider (the condition on the screen); the rate above the range, which one seed chose, must be too
large for Fading .95 on the final seeds as well; worse at its best is judged by the plain interval; one diverged run
decides against a memory on the transformer too; CIFAR-10 has a seventh rate, 3.2e-2.

The transformer's setting is one of the two of `gpt-short` whose paired differences of AdamW and AdaX-W have a standard
deviation below 0.003 nats at lr 6e-4: 4 million parameters, a context of 64 bytes: 0.0014 (n = 3) and, with six other
seeds (the float32 runs of `gpt-eight-bit`), 0.0024. The criterion also asked for seeds of AdamW within 0.005: they lie
within 0.0062 and 0.0039. The other setting, a context of 32 bytes, has 0.0009 and 0.0062. On CIFAR-10 the runs have 60
epochs, a third of the paper's, so that the study fits the GPU time that there is.

This module has the screens, `memory_rule.py` the rule as code, and `memory_finals.py` the final runs.
"""

from __future__ import annotations

from typing import Any

from adaxlab.paper.cifar10_rows import HOLDOUT, make
from adaxlab.study import Row, Study, Tuning

TOLERANCE = {"gpt-memory-screen": 0.02, "cifar10/memory-screen": 0.01}
"""In the unit of the records: nats per byte, and shares of 1."""
LR_DECAY = 1e-4
ASYMMETRIC = "adaxlab.asymmetric:AsymmetricAdamW"


def rows(steps: int, rates: tuple[float, ...]) -> tuple[Row, ...]:
    """Every memory of the study, for runs of so many steps."""

    def row(
        name: str, memory: str = "", number: float | None = None, b2_steps: float | None = None, **more: Any
    ) -> Row:
        options = {**({"memory": memory} if memory else {}), **more}
        if number is not None:
            options["betas"] = [0.9, number]
        method = ASYMMETRIC if "fast" in more else "adamw"
        return Row(name, method, options, rates=rates, b2_steps=b2_steps, lr_decay=LR_DECAY)

    return (
        *(row(f"fading {b2:g}", "fading", b2) for b2 in (0.95, 0.99, 0.999)),
        *(row(f"growing b2T={b:g}", "growing", b2_steps=b) for b in (1.0, 3.0, 10.0, 30.0)),
        row("equal", "equal", 0.0),
        *(row(f"log-time {delta:g}", "log_time", delta) for delta in (2.0, 8.0)),
        row("polynomial 0.8", "polynomial", 0.8),
        row("growing b2T=3, floor 10/T", f"growing floor {10 / steps:.6g}", b2_steps=3.0),
        row("fading 0.999, frozen after T/10", f"fading freeze {steps // 10}", 0.999),
        *(row(f"asymmetric {fast:g}", b2_steps=3.0, fast=fast) for fast in (0.01, 0.1, 0.3)),
    )


CIFAR_EPOCHS = 60
CIFAR_STEPS = (50_000 - HOLDOUT) // 128 * CIFAR_EPOCHS
CIFAR_RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
CIFAR_SCREEN = make(
    "memory-screen",
    "ours",
    "16 memories at seven learning rates",
    rows(CIFAR_STEPS, CIFAR_RATES),
    "Which memories of the second moment train well, and over which learning rates?",
    "AdamW with each memory in place of its own; lr*weight_decay is 1e-4 at every lr; one seed, on the held-out "
    "images; 60 epochs. Part of the memory study, whose rule is in `adaxlab/paper/memory.py`. The seventh rate was "
    "added after 72 runs, before any result was looked at.",
    epochs=CIFAR_EPOCHS,
    seeds=0,
    tuning=Tuning(len(CIFAR_RATES), first_seed=20_000),
    task_options={"holdout": HOLDOUT},
)

TRANSFORMER = {
    "layers": 6,
    "width": 256,
    "heads": 4,
    "inner": 512,
    "smear": True,
    "context": 64,
    "batch": 512,
    "steps": 200,
    "eval_bytes": 2**22,
    "compile": True,
}
GPT_EPOCHS = 8
GPT_RATES = (3e-4, 6e-4, 1.2e-3, 2.4e-3, 4.8e-3, 9.6e-3)
GPT_SCREEN = Study(
    name="gpt-memory-screen",
    task="gpt",
    rows=rows(TRANSFORMER["steps"] * GPT_EPOCHS, GPT_RATES),
    baseline="fading 0.95",
    seeds=0,
    tuning=Tuning(len(GPT_RATES), first_seed=20_000),
    epochs=2,  # evaluations: eight take a fifth of the time
    batch_size=32,
    task_options={**TRANSFORMER, "steps": TRANSFORMER["steps"] * GPT_EPOCHS // 2},
    schedule={"name": "cosine", "warmup": 0.1, "final": 0.1},
    where="ours",
    asks="16 memories at six learning rates",
    title="Bytes of enwik8: which memories train well, and over which learning rates?",
    note="AdamW with each memory in place of its own; lr*weight_decay is 1e-4 at every lr; one seed, on the validation "
    "split. Part of the memory study, whose rule is in `adaxlab/paper/memory.py`.",
)
