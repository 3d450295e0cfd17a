"""Records of the language and transformer studies as the tables of docs/language.md and docs/gpt.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from adaxlab.markdown import recorded, table
from adaxlab.measures import ended, final
from adaxlab.models.lstm import STATES
from adaxlab.paper import zero_state as zero_state_study
from adaxlab.paper.tables import gpu_step
from adaxlab.paper.tables.study import Column, Layout, Line, Runs
from adaxlab.study import Study
from adaxlab.summary import largest_lr

Record = Mapping[str, Any]


def versus(study: Study, digits: int = 4) -> Column:
    """How much better than the baseline a row is, with the interval that decides."""

    def cell(line: Line) -> str:
        judged, lost = line.result.verdict, line.result.diverged
        if judged is None:
            return "baseline"
        decided = judged.provisional and judged.outcome != "inconclusive"
        marks = [*["provisional"] * decided, *[f"{lost} diverged"] * bool(lost)]
        verdict = judged.outcome + (f" ({', '.join(marks)})" if marks else "")
        seen = judged.difference
        if seen is None:
            return verdict
        mean, low, high = (f"{value:+.{digits}f}" for value in (seen.mean, seen.low, seen.high))
        return f"{verdict}: {mean} ({low} to {high})"

    return Column(f"better than {study.baseline}, nats (95%)", cell)


def words(study: Study, runs: Runs) -> Layout:
    """Perplexity with interval (the exponential of the mean in nats), and the verdict in nats."""
    return Layout(
        "perplexity",
        ended(final),
        _perplexity,
        (versus(study),),
        title="`{}`".format,
        setting=_precision,
    )


def _precision(study: Study, runs: Runs) -> str:
    """The precision. The model supports only float32, which older runs did not record."""
    said = {run.env.get("precision", "fp32") for run in runs}
    assert said <= {"fp32"}, said
    return "Float32 (cuDNN's LSTM in TF32 where torch's default allows it)"


def _perplexity(nats: float) -> str:
    return f"{math.exp(nats):.1f}" if nats < 10 else f"e^{nats:.0f}"


def speeds(record: Record) -> str:
    """Words per second and the optimizer's time, with one run at a time on the device."""
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


def transformer(study: Study, runs: Runs) -> Layout:
    """Loss in nats per byte and verdict; also steps to the target if the study has one, and the largest lr that did not
    fail if it tunes lr."""
    columns = [versus(study)]
    if study.target is not None:
        columns.append(Column(f"steps to {study.target:g}", _steps))
    if study.tuning is not None:
        columns.append(Column("largest lr", lambda line: _largest(line, study)))
    title = lambda row: f"`{row.rpartition(':')[2]}`"  # noqa: E731
    return Layout(
        "nats per byte",
        ended(final),
        "{:.4f}".format,
        tuple(columns),
        title,
        setting=lambda study, runs: "bfloat16 autocast",
    )


def _steps(line: Line) -> str:
    steps = [s for s in line.result.steps_to if s is not None]
    return (
        f"{sum(steps) / len(steps):.0f} ({len(steps)} of {len(line.result.steps_to)})" if steps else "never"
    )


def _largest(line: Line, study: Study) -> str:
    found = largest_lr(line.result.trials, study.broken)
    return "none" if found is None else f"{found:g}"


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
        + f"\n\nMedian over words of max |change of the embedding|/lr. {record['title']}; b2·T = 35 for AdaX. "
        "The last column is the training loss over the last span."
    )


def zero_state(record: Record) -> str:
    """Loss of the test text and rows that fell out of their mode, from both states, net by net."""
    rows = []
    for net in record["nets"]:
        cells = [str(net["seed"])]
        for state in STATES:
            read = net["rows"][state]
            ends = [row["loss"] for row in read]
            mean, worst = zero_state_study.mean(read), None if None in ends else max(ends)
            cells += [_nats(mean, 3), _nats(worst, 1), str(zero_state_study.failed_rows(read))]
        rows.append(cells)
    said = [f"{what}, {state}" for state in STATES for what in ("nats per word", "worst row", "failed rows")]
    net, options, far = record["nets"][0], record["task_options"], f"{zero_state_study.FAILURE_MARGIN:g}"
    return (
        table(("seed", *said), rows)
        + f"\n\nThe test text ({options['text']}) in {len(net['rows']['zero'])} rows after {net['steps']} steps of "
        f"Adam at lr {record['lr']:g}, {options['hidden']:,} units; a row has failed if its loss is more than "
        f"{far} nats above that of the median row. {record['environment']['hardware']['device']}. "
        "`adax reproduce language/zero-state`."
    )


def _nats(value: float | None, digits: int) -> str:
    return "NaN" if value is None else f"{value:.{digits}f}"


SECTIONS = {
    "language-speed": recorded(
        "language/speed.json", speeds, "*Not measured yet (`python benchmarks/language.py`).*"
    ),
    "late-activation": recorded(
        "language/late_activation.json", late, "*Not run yet (`adax reproduce language/late-activation`).*"
    ),
    "zero-state": recorded(
        "language/zero_state.json", zero_state, "*Not run yet (`adax reproduce language/zero-state`).*"
    ),
}
