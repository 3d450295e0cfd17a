"""Train many small CIFAR-10 networks at once on one device."""

from adaxlab.stacked.stack import Run, Stack, StackRecipe

__all__ = ["Run", "Stack", "StackRecipe"]
