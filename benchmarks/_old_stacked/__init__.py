"""The kernels before `rows.py`, for comparison only."""
