"""AdaX for PyTorch, JAX and Keras. Importing this package imports no framework until a name is used."""

from __future__ import annotations

__version__ = "0.1.0"
