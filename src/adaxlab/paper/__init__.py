"""The reproduction of the paper: one module of data per family of studies.

A module has `TITLE` (the family's, with what it needs) and `STUDIES`; names, the catalogue, help and pages follow from
them, so a new study touches its own module alone.
"""
