"""The lab: compare optimizers fairly on a task, keep every run, report what was found, and reproduce the paper.

    from adaxlab.compare import compare, rows
    from adaxlab.study import Study, Tuning

    result = compare(Study("digits", rows(["sgdm", "adamw", "adaxw"]), tuning=Tuning(5), seeds=3), "runs")

Reading order: `task` (what is trained), `study` (what is compared), `spec` (what a run is), `driver`, `execute` and
`loop` (how it is carried out), `store` (where it is kept), `search` and `summary` (what is fair), `stats` and `verdict`
(what can be said), `compare`, `commands` and `cli` (the command `adax`). Training needs torch and numpy alone; the rest
is imported where it is used.
"""
