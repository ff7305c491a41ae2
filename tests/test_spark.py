"""The tests of the engine of a cluster, in a process of their own.

Spark leaves connections open when it ends; the next test of the process would be blamed for them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from spark_cluster import available


def test_the_engine_on_a_real_cluster() -> None:
    if (why := available()) is not None:
        pytest.skip(why)
    place = Path(__file__).with_name("on_spark.py")
    own = ("-p", "no:xdist", "-p", "no:cacheprovider", "-o", "addopts=", "--strict-markers")
    left_open = ("-W", "ignore::ResourceWarning")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *own, *left_open, str(place)],
        capture_output=True, text=True, timeout=1200, check=False, cwd=place.parent.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
