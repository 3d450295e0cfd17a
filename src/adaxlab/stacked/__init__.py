"""The paper's CIFAR-10 experiments: many small networks trained at once on one device."""

from adaxlab.stacked.stack import Run, Stack, StackRecipe

__all__ = ["Run", "Stack", "StackRecipe"]
