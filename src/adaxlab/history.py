"""Changes to a study after its results were available. They are stored in study.json and shown with every verdict.

The error rate of a verdict holds for a comparison that was fixed before the runs. Adding seeds until a difference
appears, adding an optimizer later, changing the baseline, or creating another study of the task on the same seeds
makes false verdicts more likely than the rule states.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The differences between two versions of a study's data, as events.

    >>> old = {"seeds": 3, "baseline": "adamw", "rows": [{"name": "adamw"}]}
    >>> changes(old, {**old, "seeds": 5})
    [{'changed': 'seeds', 'before': 3, 'after': 5}]
    """
    events: list[dict[str, Any]] = []
    for key in ("seeds", "baseline"):
        if before.get(key) != now.get(key):
            events.append({"changed": key, "before": before.get(key), "after": now.get(key)})
    old, new = ([row["name"] for row in content["rows"]] for content in (before, now))
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    events += [{"changed": "added", "rows": added}] if added else []
    events += [{"changed": "removed", "rows": removed}] if removed else []
    sources, known = now.get("sources", {}), before.get("sources", {})
    names = [now.get("task"), *new]
    edited = [name for name in names if name in known and known[name] != sources.get(name)]
    events += [{"changed": "edited", "rows": edited}] if edited else []
    return events


def sentences(events: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The events as sentences.

    >>> sentences([{"changed": "seeds", "before": 3, "after": 5}, {"changed": "added", "rows": ["adaxw"]}])
    ('Extended from 3 to 5 seeds after a look at the results.', 'adaxw was added after a look at the results.')
    """
    return tuple(dict.fromkeys(f"{_what(event)}." for event in events))


def _what(event: Mapping[str, Any]) -> str:
    if event["changed"] == "earlier":
        names = event["studies"]
        these = f"Study {names[0]}" if len(names) == 1 else f"The studies {', '.join(names)}"
        return f"{these} had results on this task and some of these seeds before this study was created"
    return f"{_change(event)} after a look at the results"


def _change(event: Mapping[str, Any]) -> str:
    kind = event["changed"]
    if kind == "seeds":
        before, after = event["before"], event["after"]
        return f"{'Extended' if after > before else 'Cut'} from {before} to {after} seeds"
    if kind == "baseline":
        return f"The baseline was changed from {event['before']} to {event['after']}"
    names, what = event["rows"], {"added": "added", "removed": "left out", "edited": "edited"}[kind]
    return f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} {what}"
