"""How runs are carried out. An executor takes specifications and yields the record of each run as it ends.

    process   one run after the other, in this process; other processes may share the store
    stack     many small networks side by side on one device (cifar10)
    torchrun  one run after the other, each in all processes that torchrun started (or in one), with CUDA graphs
    cluster   every run is a task of a Ray cluster

All write to the same store, so what is finished is never run again, whoever asks.
"""
