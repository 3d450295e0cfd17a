"""heavyball's optimizers without compilation, which takes minutes on a CPU: `heavy.py:AdamW`."""

import heavyball
from heavyball import AdamW, SFAdamW

__all__ = ["AdamW", "SFAdamW"]
heavyball.utils.compile_mode = None
