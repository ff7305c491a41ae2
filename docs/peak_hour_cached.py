"""Serve the day of ``sample_logs/peak_hour.jsonl`` again, with a prefix cache, for the tutorial.

``python docs/peak_hour_cached.py after.jsonl`` writes the log of the same sessions on the same
modelled servers; only the cache is new. All draws are seeded: the same bytes each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "sample_logs"))

import make_samples as sample
import numpy as np


def main(target: str) -> None:
    """Write the log to a name in ``.jsonl``."""
    sessions = sample.peak_hour_sessions(np.random.default_rng(20260310))
    served = sample.serve(
        sessions,
        sample.PEAK_HOUR_COST,
        sample.PEAK_HOUR_REPLICAS,
        cache_block=sample.CACHE_BLOCK_TOKENS,
    )
    sample.write_log(str(Path(target).resolve().with_suffix("")), served, with_cached=True)


if __name__ == "__main__":
    main(sys.argv[1])
