"""The benchmark suite: compare optimizers on a task, store every run, report the results, and reproduce the paper.

    from adaxlab.compare import compare, rows
    from adaxlab.study import Study, Tuning

    result = compare(Study("digits", rows(["sgdm", "adamw", "adaxw"]), tuning=Tuning(5), seeds=3), "runs")

Reading order: `task` (what is trained), `study` (what is compared), `spec` (one run), `driver`, `execute` and `loop`
(execution), `store` (runs on disk), `search` (tuning), `summary`, `stats` and `verdict` (results), `compare`,
`commands` and `cli` (the command `adax`). Training needs only torch and numpy; the rest is imported where it is used.
"""
