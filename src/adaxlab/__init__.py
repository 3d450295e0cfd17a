"""The lab: compare optimizers fairly on a task, keep every run, report what was found, and reproduce the paper.

    from adaxlab.compare import compare
    from adaxlab.study import Study

    result = compare(Study("digits", ("sgdm", "adamw", "adaxw"), tune=5, seeds=3), "runs")

Reading order: `task` (what is trained), `study` (what is compared), `spec` (what a run is), `loop` and `train` (how
it is carried out), `store` (where it is kept), `tune` and `compare` (what is fair), `stats` (what can be said),
`commands` and `cli` (the command `adax`). Training needs torch and numpy alone; the rest is imported where it is used.
"""
