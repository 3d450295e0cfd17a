"""The data of a page, to save: all runs as JSON lines (the format of `adax runs export`), and as two CSV tables.

The runs are in the page, compressed; the tables are made from them when they are asked for.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Sequence

from adaxlab.store import RunRecord, exported


def block(records: Sequence[RunRecord]) -> str:
    """The buttons, and what they save; empty without runs."""
    if not records:
        return ""
    packed = base64.b64encode(gzip.compress(exported(records).encode(), mtime=0)).decode()
    buttons = "".join(
        f'<button type="button" data-download="{kind}">{words}</button>'
        for kind, words in (("runs", "Runs (CSV)"), ("curves", "Curves (CSV)"), ("json", "Everything (JSON)"))
    )
    return (
        '<section id="data"><div class="wrap"><h2>Data</h2><p class="note">Runs: a line each, with its settings and '
        "result. Curves: a line per evaluation. Everything: JSON lines, which <code>adax report</code> and the other "
        f'commands read.</p><div class="chips">{buttons}</div></div>'
        f'<script type="application/octet-stream" id="records">{packed}</script></section>'
    )
