"""Records of the language and transformer studies as the tables of docs/language.md and docs/gpt.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from adaxlab import records, spec
from adaxlab.markdown import read, table
from adaxlab.models.lstm import STATES
from adaxlab.paper import drawn
from adaxlab.paper import zero_state as beginnings
from adaxlab.paper.gpt import GPT
from adaxlab.paper.language import ENWIK8, PTB
from adaxlab.paper.tables import gpu_step
from adaxlab.provenance import made_at, not_complete
from adaxlab.study import Study
from adaxlab.summary import Comparison, RowResult, summarise
from adaxopt.zoo import METHODS

Record = Mapping[str, Any]
WORDS = {"held": "better", "not held": "worse"}
"""A row's verdict on "better than the baseline", as a table says it; any other is undecided."""


def _range(mean: float, low: float | None, high: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" + ("" if low is None else f" ({low:.{digits}f} to {high:.{digits}f})")


def _verdict(row: RowResult) -> str:
    if row.verdict is None:
        return "baseline"
    verdict = WORDS.get(row.verdict.outcome, "undecided")
    if row.diverged:
        verdict = f"not better ({row.diverged} diverged)"
    if row.verdict.difference is None:
        return verdict
    seen = row.verdict.difference
    return f"{verdict}: {seen.mean:+.4f} ({seen.low:+.4f} to {seen.high:+.4f})"


def _lr(row: RowResult) -> str:
    """The lr and the second of betas, by the method's own word for it; none where there is no second moment."""
    if not row.options:
        return "not run"
    mark = " (edge)" if row.edge else ""
    method = METHODS.get(row.name.partition("@")[0])
    if method and method.rule.memory is None:
        return f"{row.lr:g}{mark}"
    word = next((word for word, place in method.names.items() if place), "b2") if method else "b2"
    return f"{row.lr:g}{mark}, {word} {row.options['betas'][1]:g}"


def _n(row: RowResult) -> str:
    return str(row.n - row.diverged)


def words(found: Comparison) -> str:
    """Perplexity with interval (the exponential of the mean in nats), and the verdict in nats."""
    study, rows = found.study, []
    for row in found.rows:
        seen = row.estimate
        ends = [math.exp(x) for x in (seen.mean, seen.low, seen.high)] if seen else []
        perplexity = _range(ends[0], ends[1], ends[2], 1) if ends else "diverged"
        rows.append((f"`{row.name}`", _lr(row), _n(row), perplexity, _verdict(row)))
    head = ("", "lr, b2", "n", "perplexity (95%)", f"better than {study.baseline}, nats (95%)")
    return table(head, rows) + f"\n\n{study.title}. {study.note}{_papers_own(found)}"


def _papers_own(found: Comparison) -> str:
    """What became of the trials at the paper's own lr: validation perplexities, with the best where that is another."""
    said = []
    for row in found.rows:
        lr = found.study.row(row.name).options.get("lr")
        if row.options and lr is not None and lr in row.trials:
            best = "the best" if row.lr == lr else f"{_perplexity(row.trials[row.lr])} at {row.lr:g}"
            said.append(f"`{row.name}` {_perplexity(row.trials[lr])} at {lr:g}, {best}")
    return (
        f" Validation perplexity at the paper's lr and at the best lr tried: {'; '.join(said)}."
        if said
        else ""
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
        table(("", "words per second", "ms per step (quartiles)", "optimizer, ms"), rows)
        + f"\n\nOne run at a time on one {record['environment']['gpu']}, a vocabulary of {record['words']:,} words, "
        f"{record['words_a_step']:,} words per step; medians of {record['rounds']} rounds of {record['steps']} steps, "
        f"rows alternating. `python benchmarks/language.py`.{gpu_step.since(record)}"
    )


def _loss(row: RowResult) -> str:
    seen = row.estimate
    return _range(seen.mean, seen.low, seen.high, 4) if seen else "diverged"


def _largest(row: RowResult, study: Study) -> str:
    found = row.largest_lr(study.broken)
    return "none" if found is None else f"{found:g}"


def transformer(found: Comparison) -> str:
    """Loss with interval, verdict, steps to the target, the largest lr that did not break."""
    study, rows = found.study, []
    for row in found.rows:
        steps = [s for s in row.steps_to if s is not None]
        reached = f"{sum(steps) / len(steps):.0f} ({len(steps)} of {len(row.steps_to)})" if steps else "never"
        name = f"`{row.name.rpartition(':')[2]}`"
        rows.append((name, _lr(row), _n(row), _loss(row), _verdict(row), reached, _largest(row, study)))
    head = (
        "",
        "lr, b2",
        "n",
        "nats per byte (95%)",
        f"better than {study.baseline} (95%)",
        f"steps to {study.target:g}",
        "largest lr",
    )
    return table(head, rows) + f"\n\n{study.title}. {study.note}"


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
        + f"\n\nMedian over words of max |change of the embedding|/lr. {record['title']}; b2*T = 35 for AdaX. "
        "The last column is the training loss over the last span."
    )


def _study(root: Path, study: Study, show: Callable[[Comparison], str]) -> str:
    """The table, where the runs were made, and the figures."""
    runs = records.load(root / "records", study.name)
    if not runs:
        return not_complete(study, root)
    return f"{show(summarise(study, runs))} {made_at(runs)}.\n\n{drawn.shown(spec.folder(study.name))}"


def ptb(root: Path) -> str:
    return _study(root, PTB, words)


def enwik8(root: Path) -> str:
    return _study(root, ENWIK8, words)


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
    said = [f"{what}, {state}" for state in STATES for what in ("nats per word", "worst row", "failed rows")]
    net, options, far = record["nets"][0], record["task_options"], f"{beginnings.FAR:g}"
    return (
        table(("seed", *said), rows)
        + f"\n\nThe test text ({options['text']}) in {len(net['rows']['zero'])} rows after {net['steps']} steps of "
        f"Adam at lr {record['lr']:g}, {options['hidden']:,} units; a row has failed when its loss is {far} nats "
        "above the "
        f"median row's. {record['environment']['hardware']['device']}. `adax reproduce language/zero-state`."
    )


def _nats(value: float | None, digits: int) -> str:
    return "NaN" if value is None else f"{value:.{digits}f}"


def zero_state(root: Path) -> str:
    record = read(root, "language/zero_state.json")
    return begun(record) if record else "*Not run yet (`adax reproduce language/zero-state`).*"


def gpt(root: Path) -> str:
    return _study(root, GPT, transformer)


def gpt_guide(root: Path) -> str:
    """The transformer study for users of AdamW: best lr, loss and largest lr of the rows of AdamW and AdaX-W."""
    runs = records.load(root / "records", GPT.name)
    if not runs:
        return not_complete(GPT, root)
    rows = [
        (f"`{row.name}`", _lr(row), _largest(row, GPT), _n(row), _loss(row))
        for row in summarise(GPT, runs).rows
        if row.name.startswith(("adamw", "adaxw"))
    ]
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
