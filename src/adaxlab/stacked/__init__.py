"""The paper's CIFAR-10 experiments: many small networks trained at once on one device."""

from adaxlab.stacked.stack import Recipe, Run, Stack

__all__ = ["Recipe", "Run", "Stack"]
