"""Executors: each takes specifications of runs and yields the record of each run when it ends.

    process   one run after the other in this process; several processes may share the store
    stack     many small networks at once on one device (cifar10)
    torchrun  one run after the other in all processes that torchrun started (or in one), with CUDA graphs
    cluster   each run is a task of a Ray cluster

All use the same store, so a finished run is never repeated.
"""
