"""Records of the language and transformer studies as the tables of docs/language.md and docs/gpt.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adaxlab import drawn, gpu_step
from adaxlab.gpt.studies import GPT
from adaxlab.grid import Grid
from adaxlab.handover import made_at, not_complete
from adaxlab.language import beginnings
from adaxlab.language.model import STATES
from adaxlab.language.studies import ENWIK8, PTB
from adaxlab.markdown import read, table
from adaxopt.zoo import METHODS

Record = Mapping[str, Any]
WORDS = {"held": "better", "not held": "worse"}
"""A row's verdict on "better than the baseline", as a table says it; any other is undecided."""


def edge(row: Mapping[str, Any]) -> bool:
    """Whether the best lr is the smallest or the largest that was tried: the tuning did not enclose the best.

    >>> edge({"options": {"lr": 0.1}, "trials": [[0.01, 2.0], [0.1, 1.0]]})
    True
    """
    tried = [lr for lr, _ in row["trials"]]
    return bool(row["options"]) and len(tried) > 1 and row["options"]["lr"] in (tried[0], tried[-1])


def _range(mean: float, low: float | None, high: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if low is None else f" ({low:.{digits}f} to {high:.{digits}f})")


def _verdict(row: Record, baseline: str) -> str:
    if row["optimizer"] == baseline:
        return "baseline"
    verdict = WORDS.get(row.get("verdict", ""), "undecided")
    if row["diverged"]:
        verdict = f"not better ({row['diverged']} diverged)"
    if "better_by" not in row:
        return verdict
    mean, low, high = row["better_by"]
    return f"{verdict}: {mean:+.4f} ({low:+.4f} to {high:+.4f})"


def _lr(row: Record) -> str:
    """The lr and the second of betas, by the method's own word for it; none where there is no second moment."""
    if not row["options"]:
        return "not run"
    mark = " (edge)" if edge(row) else ""
    method = METHODS.get(row["optimizer"].partition("@")[0])
    if method and method.rule.memory is None:
        return f"{row['options']['lr']:g}{mark}"
    word = next((word for word, place in method.names.items() if place), "b2") if method else "b2"
    return f"{row['options']['lr']:g}{mark}, {word} {row['options']['betas'][1]:g}"


def words(record: Record) -> str:
    """Perplexity with interval (the exponential of the mean in nats), and the verdict in nats."""
    baseline = record["grid"]["baseline"]
    rows = []
    for row in record["rows"]:
        ends = [None if row.get(k) is None else math.exp(row[k]) for k in ("mean", "low", "high")]
        perplexity = "diverged" if ends[0] is None else _range(ends[0], ends[1], ends[2], 1)
        name, lr, n = f"`{row['optimizer']}`", _lr(row), str(row["n"])
        rows.append((name, lr, n, perplexity, _verdict(row, baseline)))
    head = ("", "lr, b2", "n", "perplexity (95%)", f"better than {baseline}, nats (95%)")
    return table(head, rows) + f"\n\n{record['title']}. {record['grid']['note']}{_papers_own(record)}"


def _papers_own(record: Record) -> str:
    """What became of the trials at the paper's own lr: validation perplexities, with the best where that is another."""
    said = []
    for row, asked in zip(record["rows"], record["grid"]["rows"], strict=True):
        lr, trials = asked["options"].get("lr"), dict(row["trials"])
        if row["options"] and lr in trials:
            found = row["options"]["lr"]
            best = "the best" if found == lr else f"{_perplexity(trials[found])} at {found:g}"
            said.append(f"`{row['optimizer']}` {_perplexity(trials[lr])} at {lr:g}, {best}")
    return (
        f" Validation perplexity at the paper's lr and at the best tried: {'; '.join(said)}." if said else ""
    )


def _perplexity(nats: float | None) -> str:
    return "diverged" if nats is None else f"{math.exp(nats):.0f}" if nats < 10 else f"e^{nats:.0f}"


def speeds(record: Record) -> str:
    """Words a second and the optimizer's time, one run alone on the device."""
    rows = [
        (
            f"`{row['optimizer']}`",
            f"{row['words_a_second']:,}",
            f"{row['ms']:.2f} ({row['quartiles'][0]:.2f} to {row['quartiles'][1]:.2f})",
            f"{row['optimizer_ms']:.2f}",
        )
        for row in record["rows"]
    ]
    return (
        table(("", "words a second", "ms a step (quartiles)", "of that the optimizer"), rows)
        + f"\n\nOne run alone on one {record['environment']['gpu']}, {record['words']:,} words of vocabulary, "
        f"{record['words_a_step']:,} words a step; medians of {record['rounds']} rounds of {record['steps']} steps, "
        f"rows in turn. `python benchmarks/language.py`.{gpu_step.since(record)}"
    )


def _loss(row: Record) -> str:
    return _range(row["mean"], row["low"], row["high"], 4) if row["n"] else "diverged"


def _largest(row: Record) -> str:
    return "none" if row["largest_lr"] is None else f"{row['largest_lr']:g}"


def transformer(record: Record) -> str:
    """Loss with interval, verdict, steps to the target, the largest lr that did not break."""
    baseline, target = record["grid"]["baseline"], record["grid"]["target"]
    rows = []
    for row in record["rows"]:
        steps = [s for s in row["steps_to"] if s is not None]
        reached = (
            f"{sum(steps) / len(steps):.0f} ({len(steps)} of {len(row['steps_to'])})" if steps else "never"
        )
        name = f"`{row['optimizer'].rpartition(':')[2]}`"
        rows.append(
            (name, _lr(row), str(row["n"]), _loss(row), _verdict(row, baseline), reached, _largest(row))
        )
    head = (
        "",
        "lr, b2",
        "n",
        "nats per byte (95%)",
        f"better than {baseline} (95%)",
        f"steps to {target:g}",
        "largest lr",
    )
    return table(head, rows) + f"\n\n{record['title']}. {record['grid']['note']}"


def late(record: Record) -> str:
    """The size of a word's first update, in units of lr, in a few spans of steps."""
    first = record["rows"][0]["points"]
    chosen = sorted({round(i * (len(first) - 1) / 5) for i in range(6)})
    head = ["new words around step", *(f"{first[i]['step']:.0f}" for i in chosen), "last loss"]
    rows = []
    for row in record["rows"]:
        points = row["points"]
        sizes = [f"{points[i]['median']:.3g}" if i < len(points) else "stopped" for i in chosen]
        rows.append((row["row"], *sizes, f"{points[-1]['loss']:.2f}"))
    return (
        table(head, rows)
        + f"\n\nMedian over words of max |change of its embedding|/lr. {record['title']}; b2*T = 35 for AdaX. "
        "The last column is the training loss over the last span."
    )


def _study(root: Path, name: str, study: Grid, show: Callable[[Record], str]) -> str:
    """The table, where the runs were made, and the pictures, if the runs are there to draw them from."""
    record = read(root, f"{name}.json")
    if not record:
        return not_complete(study, root, name.replace("gpt/", ""))
    made = made_at(record.get("runs_made_at", ()))
    pictures = f"\n\n{drawn.shown(study.name)}" if (root / "records" / f"{name}.jsonl").is_file() else ""
    return show(record) + (f" {made}." if made else "") + pictures


def ptb(root: Path) -> str:
    return _study(root, "language/ptb", PTB, words)


def enwik8(root: Path) -> str:
    return _study(root, "language/enwik8", ENWIK8, words)


def speed(root: Path) -> str:
    record = read(root, "language/speed.json")
    return speeds(record) if record else "*Not measured yet (`python benchmarks/language.py`).*"


def late_wakers(root: Path) -> str:
    record = read(root, "language/late_wakers.json")
    return late(record) if record else "*Not run yet (`adax reproduce language/late-wakers`).*"


def begun(record: Record) -> str:
    """Loss of the test text and rows that fell out of their mode, from both states, net by net."""
    rows = []
    for net in record["nets"]:
        cells = [str(net["seed"])]
        for state in STATES:
            read = net["rows"][state]
            ends = [row["loss"] for row in read]
            mean, worst = beginnings.mean(read), None if None in ends else max(ends)
            cells += [_nats(mean, 3), _nats(worst, 1), str(beginnings.fallen(read))]
        rows.append(cells)
    said = [f"{what}, {state}" for state in STATES for what in ("nats per word", "worst row", "rows fallen")]
    net, options, far = record["nets"][0], record["task_options"], f"{beginnings.FAR:g}"
    return (
        table(("seed", *said), rows)
        + f"\n\nThe test text ({options['text']}) in {len(net['rows']['zero'])} rows after {net['steps']} steps of "
        f"Adam at lr {record['lr']:g}, {options['hidden']:,} units; a row has fallen at {far} nats above the middle "
        f"one. {record['environment']['hardware']['device']}. `adax reproduce language/zero-state`."
    )


def _nats(value: float | None, digits: int) -> str:
    return "no number" if value is None else f"{value:.{digits}f}"


def zero_state(root: Path) -> str:
    record = read(root, "language/zero_state.json")
    return begun(record) if record else "*Not run yet (`adax reproduce language/zero-state`).*"


def gpt(root: Path) -> str:
    return _study(root, "gpt/gpt", GPT, transformer)


def gpt_guide(root: Path) -> str:
    """What the transformer says to who comes from AdamW: best lr, loss and the largest lr of the rows beside it."""
    record = read(root, "gpt/gpt.json")
    if not record:
        return not_complete(GPT, root, "gpt")
    rows = []
    for row in record["rows"]:
        if row["optimizer"].startswith(("adamw", "adaxw")):
            rows.append((f"`{row['optimizer']}`", _lr(row), _largest(row), str(row["n"]), _loss(row)))
    head = ("", "best lr of six, b2", "largest lr within 0.25 nats of it", "n", "nats per byte (95%)")
    return table(head, rows)


SECTIONS = {
    "language-ptb": ptb,
    "language-words": enwik8,
    "language-speed": speed,
    "late-wakers": late_wakers,
    "zero-state": zero_state,
    "gpt": gpt,
    "gpt-guide": gpt_guide,
}
