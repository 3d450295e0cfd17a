"""Tables of the ImageNet studies in Markdown, from the records."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from adaxlab import drawn, markdown, stats
from adaxlab.imagenet.book import RATES, STAND_INS, STUDIES, Study, best_rates, scores, tuned_rows
from adaxlab.imagenet.lines import records
from adaxlab.imagenet.rules import failed
from adaxlab.provenance import UNFINISHED
from adaxlab.report.names import title

Lines = Sequence[Mapping[str, Any]]
TITLES = {row: title(row.replace("-b2T50", "@b2T=50")) for row in RATES}
HOW = {"compiled": "compiled", "graph": "by a CUDA graph"}
PRECISION = {"bf16": "bfloat16 autocast", "tf32": "TF32", "fp32": "float32", "fp64": "float64"}


def show(study: Study, found: Lines) -> str:
    """A study's rows: ours with n and interval, the paper's on ImageNet beside it; of tuning, what was tried."""
    if study.name == "tuning":
        return tried(study, found)
    heads = ("", "lr", "b2·T", "n", "top-1, %", "95% interval", "training accuracy, %", "paper, on ImageNet")
    rows: list[tuple[object, ...]] = []
    for row in study.rows:
        mine = [r for r in found if r["row"] == row.name]
        good = [r for r in mine if not failed(r)]
        paper = f"{row.paper[0]:.2f} ± {row.paper[1]:.2f}" if row.paper else ""
        memory = next((f"{r['b2_steps']:.3g}" for r in mine if r["b2_steps"] is not None), "")
        head = (TITLES.get(row.name, row.name), f"{row.options['lr']:g}", memory)
        if not good:
            rows.append((*head, 0, f"all {len(mine)} failed" if mine else "not run", "", "", paper))
            continue
        seen = stats.t_interval([r["test_accuracy"] for r in good])
        trained = stats.mean([r["train_accuracy"] for r in good])
        interval = f"{seen.low:.2f} to {seen.high:.2f}" if seen.n > 1 else "–"
        lost = f" ({len(mine) - len(good)} failed)" if len(mine) > len(good) else ""
        rows.append((*head, f"{seen.n}{lost}", f"{seen.mean:.2f}", interval, f"{trained:.2f}", paper))
    return markdown.table(heads, rows) + "\n\n" + caption(study, found) + edges(study) + strange(study)


def tried(study: Study, found: Lines) -> str:
    """Tuning: a row a method, its rates from the largest to the smallest; the best in bold, once all have ended."""
    asked = {(run.row, run.seed) for run in study.runs()}
    missing = len(asked - {(r["row"], r["seed"]) for r in found})
    best = {} if missing else best_rates(found)
    count = max(map(len, RATES.values()))
    rows = []
    for method, rates in RATES.items():
        mine = [r for r in found if r["row"].startswith(f"{method} lr ")]
        memory = next((f"{r['b2_steps']:.3g}" for r in mine if r["b2_steps"] is not None), "")
        reached = scores(found, method)
        cells = [f"{lr:g}: {_score(reached.get(lr), lr == best.get(method))}" for lr in rates]
        rows.append((TITLES[method], memory, *cells))
    left = f" {missing} of {len(asked)} runs are still to be made." if missing else ""
    lost = sum(map(failed, found))
    gone = f" {lost} runs failed; a mean is of the others." if lost else ""
    heads = ("", "b2·T", *["lr: top-1, %"] * count)
    return markdown.table(heads, rows) + "\n\n" + caption(study, found) + strange(study) + gone + left


def _score(reached: float | None, best: bool) -> str:
    if reached is None:
        return "–"
    if reached == -math.inf:
        return "failed"
    return f"**{reached:.2f}**" if best else f"{reached:.2f}"


def strange(study: Study) -> str:
    """A sentence on a study that was shortened or changed: a row's name says what b2*T is at the full length."""
    if study.name not in STUDIES or study.recipe == STUDIES[study.name].recipe:
        return ""
    return " Changed from the study's own length or sizes: b2·T is the column's, and nothing here judges a claim."


def edges(study: Study) -> str:
    """A sentence on methods whose best rate was the first or last of those tried: a wider search might say more."""
    rates = {row.name: row.options["lr"] for row in study.rows if study.follows}
    found = [TITLES[name] for name, lr in rates.items() if lr in (min(RATES[name]), max(RATES[name]))]
    return f" Best at the edge of the rates that were tried: {', '.join(found)}." if found else ""


def caption(study: Study, found: Lines) -> str:
    """What was run, on what."""
    if not found:
        return study.note
    record = found[0]
    recipe, device = record["recipe"], record["environment"]["hardware"]["device"]
    judged = "pictures held out of training" if study.holdout else "validation pictures"
    return (
        f"{recipe['model'].replace('resnet', 'ResNet-')} (stem: {recipe['stem']}), {record['classes']} classes, "
        f"{record['images']:,} pictures, crops of {recipe['size']} pixels, {recipe['epochs']} epochs of batch "
        f"{recipe['batch']} ({record['steps']:,} steps), {PRECISION[record['precision']]}, top-1 of the last epoch on "
        f"{record['test_images']:,} {judged}; {device}. "
        f"`adax reproduce imagenet/{study.name}`. AdaX as the paper has it (`wake=False`). {study.note}"
    )


def table(name: str, root: Path) -> str:
    """A study's table from the committed records; what was not run says so."""
    found = records(root / "records" / "imagenet" / f"{name}.jsonl")
    study = STUDIES[name]
    if not found:
        ended = f"records/{UNFINISHED}/imagenet-{name}.jsonl"
        if not (root / ended).is_file():
            return f"*Not run yet (`adax reproduce imagenet/{name}`).*"
        which = "those at the lr that tuning chooses" if study.follows else "they"
        return (
            f"*Not complete: {len(records(root / ended))} of {len(study.runs())} runs have ended ([they](../{ended})); "
            f"nothing is said before all have. As `{name}.jsonl` in the folder of `--out` {which} count as made.*"
        )
    if study.follows:
        lines = records(root / "records" / "imagenet" / "tuning.jsonl")
        study = replace(study, rows=tuned_rows(best_rates(lines)))
    return show(study, found)


def speed(root: Path) -> str:
    """Pictures a second, with and without the network, from records/imagenet/speed.json."""
    path = root / "records" / "imagenet" / "speed.json"
    if not path.is_file():
        return "*Not measured yet (`python -m adaxlab.imagenet speed --data FOLDER`).*"
    return speed_table(json.loads(path.read_text()))


def speed_table(record: Mapping[str, Any]) -> str:
    """The rows of `speed.measure`."""
    read = [(r["what"], f"{r['images_per_second']:,.0f}", f"{r['ms']:.2f}") for r in record["rows"]]
    text = markdown.table(("", "pictures a second", "ms a batch"), read)
    device = record["environment"]["hardware"]["device"]
    turns = record.get("in_turn", {})
    if ms := turns.get("ms"):
        rows = [(TITLES.get(row, row), f"{statistics.median(v):.3f}", len(v)) for row, v in ms.items()]
        text += "\n\n" + markdown.table(("methods in turn", "ms a step, median", "rounds"), rows)
    return text + (
        f"\n\nBatches of {record['batch']}, pictures of {record['stored']} pixels, {record['model']}, "
        f"{PRECISION[record['precision']]}; {device}, torch {record['environment']['versions']['torch']}."
        f"{_turns(turns)}"
    )


def _turns(turns: Mapping[str, Any]) -> str:
    """How the methods in turn were measured, as far as the record says it."""
    if not turns.get("ms"):
        return " Methods in turn: not measured."
    compiled, graph = (("" if turns[key] else "not ") + word for key, word in HOW.items())
    many = f", {turns['processes']} processes" if turns["processes"] > 1 else ""
    return f" Methods in turn: study {turns['study']}, {turns['steps']} steps a round, {compiled}, {graph}{many}."


def _section(name: str) -> Callable[[Path], str]:
    def section(root: Path) -> str:
        ran = (root / "records" / "imagenet" / f"{name}.jsonl").is_file()
        return table(name, root) + (f"\n\n{drawn.shown(f'imagenet-{name}')}" if ran else "")

    return section


SECTIONS: dict[str, Callable[[Path], str]] = {
    **{f"imagenet-{name}".replace("50", "-fifty"): _section(name) for name in STAND_INS},
    "imagenet-speed": speed,
}
"""Marked parts of docs/imagenet.md (marks are letters and hyphens only)."""
