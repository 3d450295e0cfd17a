"""The transformer study: `adax reproduce gpt`. Not an experiment of the paper; written before the runs.

21.2 million parameters, bytes of enwik8, context 512, batch 32, 2,000 steps, warmup 200, cosine to 10%, gradient norm
clipped to 1, bf16. Each row has six trials of the learning rate with one seed on the validation split (a factor of 2
apart; 3 for SGDM, whose scale is unknown) in runs of 600 steps, with warmup, schedule and b2*T scaled accordingly;
lr*weight_decay is 1e-4 at every lr, so that a larger lr does not mean a larger decay. The best lr is evaluated on the
test split with three new seeds.

    better      Student's paired 95% interval, over the seeds, of (AdamW's loss - the row's) is above 0: better than
                AdamW with b2 .95; below 0: worse; else inconclusive
    steps to    the first step at which the test loss is at most 1.25 nats per byte, interpolated linearly between
                evaluations; none for a run that does not reach it
    largest lr  the largest of the six whose run did not diverge and ended within 0.25 nats of the row's best

A row whose best lr is the smallest or the largest of the six is marked: the optimum may be outside the grid.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adaxlab.claim import Claim
from adaxlab.paper import memory, memory_finals
from adaxlab.stats import DecisionRule
from adaxlab.study import Row, Study, Tuning
from adaxopt.zoo import METHODS

RATES = (3e-4, 6e-4, 1.2e-3, 2.4e-3, 4.8e-3, 9.6e-3)
SGD_RATES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
MUON = "adaxlab.muon:MuonAdamW"
LR_DECAY = 1e-4
OURS: dict[str, Any] = {
    "task": "gpt",
    "where": "ours",
    "batch_size": 32,
    "schedule": {"name": "cosine", "warmup": 0.1, "final": 0.1},
}


def _row(name: str, options: dict[str, Any], b2_steps: float | None = None) -> Row:
    return Row(name, options=options, rates=RATES, b2_steps=b2_steps, lr_decay=LR_DECAY)


PLAIN = DecisionRule(correction="none")
"""The rule that was fixed before the runs: each row on its own."""

GPT = Study(
    name="gpt",
    rows=(
        _row("adamw", {"betas": [0.9, 0.95]}),
        _row("adamw@b2=.999", {"betas": [0.9, 0.999]}),
        *(_row(f"adaxw@b2T={b:g}", {}, b) for b in (1.0, 3.0, 10.0, 30.0)),
        _row("adaxw@clipped", {"clip_update": 1.0}, 1.0),
        _row("nosadam", {"decay": "decoupled"}),
        Row("muon", MUON, {"betas": [0.9, 0.95]}, rates=RATES, lr_decay=LR_DECAY),
        Row("sgdm", options={"decay": "decoupled"}, rates=SGD_RATES, lr_decay=LR_DECAY),
    ),
    baseline="adamw",
    seeds=3,
    rule=PLAIN,
    epochs=20,
    tuning=Tuning(len(RATES), epochs=6),
    task_options={"batch": 32, "eval_bytes": 2**19, "compile": True},
    target=1.25,
    **OURS,
    asks="a transformer, with AdamW and Muon",
    title="Bytes of enwik8, 21 million parameters, 2,000 steps",
    note="adaxw@clipped, at b2*T = 1, clips each coordinate's update to [-1, 1]*lr.",
    figures=("difference", "lr", "metric"),
)

NOISE_LR = 6e-4


def _plain(name: str, method: str, task_options: dict[str, Any] | None = None, **options: Any) -> Row:
    """AdamW or AdaX-W at the learning rate of the noise studies."""
    own: dict[str, Any] = {} if method == "adaxw" else {"betas": [0.9, 0.95]}
    return Row(
        name,
        method,
        {"lr": NOISE_LR, **own, **options},
        task_options=task_options or {},
        b2_steps=3.0 if method == "adaxw" else None,
        lr_decay=LR_DECAY,
    )


NOISE = Study(
    name="gpt-noise",
    rows=(
        _plain("adamw", "adamw"),
        _plain("adaxw", "adaxw"),
        _plain("same weights", "adamw", {"init_seed": 0}),
        _plain("same windows", "adamw", {"order_seed": 0}),
        _plain("same both", "adamw", {"init_seed": 0, "order_seed": 0}),
        _plain("half the lr", "adamw", lr=NOISE_LR / 2),
        _plain("twice the lr", "adamw", lr=NOISE_LR * 2),
        _plain("twice the batch", "adamw", {"batch": 64}),
        _plain("twice the steps", "adamw", {"steps": 200}),
    ),
    baseline="adamw",
    seeds=4,
    first_seed=200,
    epochs=8,
    task_options={"batch": 32, "eval_bytes": 2**22, "compile": True},
    **OURS,
    asks="sources of noise between seeds",
    title="Bytes of enwik8: how much seeds differ, and why",
    note="800 steps (1,600 in one row). Rows share or vary initial weights, windows, lr, batch size and length; "
    "`tools/seed_noise.py` shows the standard deviation of each, and of the difference between AdamW and AdaX-W.",
)

SMALL = {"smear": True, "layers": 6, "width": 256, "heads": 4, "inner": 512, "steps": 200}
QUIET_SIZES: dict[str, dict[str, Any]] = {
    "smeared": {"smear": True},
    "smeared, batch 64": {"smear": True, "batch": 64},
    "context 128": {"context": 128, "batch": 128},
    "small, smeared": {**SMALL, "batch": 64},
}


def _settings(sizes: dict[str, dict[str, Any]]) -> tuple[Row, ...]:
    """AdamW and AdaX-W in each setting."""
    return tuple(
        _plain(f"{method} {size}", method, options)
        for size, options in sizes.items()
        for method in ("adamw", "adaxw")
    )


CRITERION = (
    "A setting is quiet if the standard deviation of the paired difference between AdamW and AdaX-W is below 0.003 "
    "nats and the seeds of AdamW are within 0.005 of each other, with at most one minute per run. Of several quiet "
    "settings, the memory study uses the one with the smallest product of standard deviation and square root of run "
    "time."
)
QUIET = Study(
    name="gpt-quiet",
    rows=_settings(QUIET_SIZES),
    baseline="adamw smeared",
    seeds=5,
    first_seed=210,
    epochs=8,
    task_options={"batch": 32, "eval_bytes": 2**22, "compile": True},
    **OURS,
    asks="which transformer has little noise",
    title="Bytes of enwik8: settings with little noise between seeds",
    note=f"Written after `gpt-noise`, before its own runs. {CRITERION}",
)

SHORT = Study(
    name="gpt-short",
    rows=_settings(
        {
            "4M, context 64": {**SMALL, "context": 64, "batch": 512},
            "4M, context 32": {**SMALL, "context": 32, "batch": 1024},
            "21M, context 64": {"smear": True, "context": 64, "batch": 256},
        }
    ),
    baseline="adamw 4M, context 64",
    seeds=5,
    first_seed=220,
    epochs=8,
    task_options={"eval_bytes": 2**22, "compile": True},
    **OURS,
    asks="do short contexts have little noise",
    title="Bytes of enwik8, short contexts: settings with little noise between seeds",
    note="Written after `gpt-quiet`, before its own runs. There, the seeds of the smeared network with 4 million "
    "parameters are within 0.003 of each other until step 600, and separate when the network learns to copy over a "
    f"distance. With a context of 32 or 64 bytes there is little to copy. {CRITERION}",
)

SHARED = Study(
    name="gpt-shared",
    rows=tuple(
        _plain(f"{method} lr {lr:g}", method, lr=lr)
        for lr in (NOISE_LR, 2.4e-3)
        for method in ("adamw", "adaxw")
    ),
    baseline="adamw lr 0.0006",
    seeds=6,
    first_seed=340,
    epochs=memory.GPT_EPOCHS,
    task_options={**memory.TRANSFORMER, "init_seed": 0},
    **OURS,
    asks="noise of seeds with shared weights",
    title="Bytes of enwik8, context 64: noise between seeds that share their initial weights",
    note="Written after the memory study, before its own runs. The transformer of the memory study, at the lr of "
    "`gpt-short` and at the best lr of the memory study, with the same initial weights for all seeds. A setting is "
    "quiet if the standard deviation of the paired difference between AdamW and AdaX-W is below 0.003 nats and the six "
    "seeds of both are within 0.005 of each other, with at most one minute per run. Results of runs that share their "
    "initial weights hold for these weights only.",
)

STATE: dict[str, dict[str, Any]] = {"float32": {}, "8-bit": {"state_dtype": "uint8"}}
ROUNDED: dict[str, dict[str, Any]] = {
    "24-bit": {"state_dtype": "uint8", "rounding": "24bit"},
    "bf16": {"state_dtype": "uint8", "rounding": "stochastic"},
}
BOTH = ("adamw", "adaxw")
EIGHT_BIT = Study(
    name="gpt-eight-bit",
    rows=tuple(
        _plain(f"{method}, {name}", method, **state) for method in BOTH for name, state in STATE.items()
    ),
    baseline="adamw, float32",
    seeds=6,
    first_seed=230,
    epochs=memory.GPT_EPOCHS,
    task_options=memory.TRANSFORMER,
    **OURS,
    asks="8-bit state against float32",
    title="Bytes of enwik8: does 8-bit state change the result of AdamW and AdaX-W?",
    note="The setting of the memory study, at the lr of `gpt-short`. n = 6: at its paired standard deviation of 0.0014 "
    "and no difference, the whole interval is within 0.005 nats in nearly every repetition from n = 5 on. Written "
    "before the runs.",
    figures=("seeds", "difference"),
)
BF16 = replace(
    EIGHT_BIT,
    name="gpt-bf16",
    rows=tuple(
        row
        for method in BOTH
        for row in (
            _plain(f"{method}, float32", method),
            *(
                _plain(f"{method}, {name}", method, {"weights": "bf16"}, **own)
                for name, own in ROUNDED.items()
            ),
        )
    ),
    seeds=8,
    asks="24-bit, bf16 and float32 weights",
    title="Bytes of enwik8: do 24-bit or bf16 weights change the result of AdamW and AdaX-W?",
    note="As `gpt-eight-bit`, whose float32 runs it uses. In the other rows the matrices and their gradients are bf16 "
    "(norms float32), and m and v 8-bit: `24-bit` has 8 correction bits for each weight, `bf16` has none and rounds "
    "stochastically. Evaluated with the bf16 weights. n = 8: the paired standard deviation in `gpt-eight-bit` was "
    "0.0023 (AdamW). Written before the runs of these rows; six of the float32 runs of each method were known.",
)

TITLE = "A transformer (adax data get enwik8), a GPU"
STUDIES = (GPT, NOISE, QUIET, SHORT, SHARED, *memory_finals.GPT_STUDIES, EIGHT_BIT, BF16)


def _similar(study: str, kind: str, id: str, text: str, where: str) -> tuple[Claim, ...]:
    """For both methods: row `kind` ends at the loss of row `float32`."""
    return tuple(
        Claim(
            f"gpt.{id}-{row}",
            f"{METHODS[row].title} has a similar final loss with {text}",
            f"Beyond the paper: {where} on a transformer",
            study,
            "similar",
            "loss per byte",
            f"{row}, {kind}",
            f"{row}, float32",
            margin=0.005,
            ours=True,
            note="within 0.005 nats per byte",
        )
        for row in BOTH
    )


WEIGHTS, IN_FLOAT32 = "24-bit and bf16 weights", "with both in float32"
CLAIMS = (
    *_similar("gpt-eight-bit", "8-bit", "eight-bit", "8-bit and with float32 state", "8-bit state"),
    *_similar("gpt-bf16", "24-bit", "24-bit", f"24-bit weights and 8-bit state as {IN_FLOAT32}", WEIGHTS),
    *_similar(
        "gpt-bf16",
        "bf16",
        "bf16",
        f"stochastically rounded bf16 weights and 8-bit state as {IN_FLOAT32}",
        WEIGHTS,
    ),
    *memory_finals.GPT_CLAIMS,
)
