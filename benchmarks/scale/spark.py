"""What the benchmark knows of Spark: its masters, and the log that counts shuffled bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def masters() -> dict[str, str]:
    """Name of a contender to the master that it runs on: one and two workers of a core each."""
    return {"spark, 1 worker": "local[1]", "spark, 2 workers": "local[2]"}


def settings(folder: Path) -> dict[str, str]:
    """Variables by which a Spark that is started anew writes its event log into a folder.

    They reach whatever starts a session, without an option of its own; who starts none is not
    touched by them.
    """
    events = folder / "events"
    events.mkdir(parents=True)
    (folder / "spark-defaults.conf").write_text(
        "spark.eventLog.enabled true\n"
        f"spark.eventLog.dir {events.absolute().as_uri()}\n"
        "spark.eventLog.compress false\n"
        "spark.eventLog.rolling.enabled false\n"
    )
    return {"SPARK_CONF_DIR": str(folder)}


def shuffled(folder: Path) -> int:
    """Bytes that all tasks wrote for a shuffle, by the event logs in a folder; 0 without one."""
    total = 0
    for path in (folder / "events").rglob("*"):
        if not path.is_file():
            continue
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                if '"SparkListenerTaskEnd"' in line:
                    metrics = json.loads(line).get("Task Metrics") or {}
                    written = metrics.get("Shuffle Write Metrics") or {}
                    total += int(written.get("Shuffle Bytes Written", 0))
    return total


def answers(path: Path) -> dict[str, Any]:
    """A document without what may differ from run to run: nothing, so far."""
    found: dict[str, Any] = json.loads(path.read_text())
    return found
