"""Logs that grow: each line once, whatever becomes of files; the figures are those of diagnose."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from ttftdoctor.cli import app
from ttftdoctor.errors import InputError, UsageError
from ttftdoctor.language import speaking
from ttftdoctor.run import diagnose, read
from ttftdoctor.watching import follow, taken
from ttftdoctor.watching.flow import Watch
from ttftdoctor.watching.follow import Follower
from ttftdoctor.watching.minutes import Lately, Minutes
from ttftdoctor.watching.screen import Page, line

SAMPLES = Path(__file__).parent.parent / "sample_logs"
SECRET = "the-secret-of-the-prompt"


def rows(n: int, seed: int = 0, start: float = 1_790_000_000.0) -> list[bytes]:
    """Lines of a flat log, with some that cannot be used."""
    r = random.Random(seed)
    out = []
    for i in range(n):
        start += r.expovariate(3)
        turn = i % 8 + 1
        size = turn * 900 + r.randint(50, 600)
        ttft = 60 + size * 0.08 + r.expovariate(1 / 80)
        row: dict[str, Any] = {
            "request_id": f"r-{seed}-{i:07d}", "session_id": f"chat-{seed}-{i // 8:05d}",
            "turn": turn, "timestamp": round(start, 3), "model": "m", "input_tokens": size,
            "cached_tokens": 0, "output_tokens": r.randint(20, 300), "ttft_ms": round(ttft, 2),
            "e2e_ms": round(ttft + 2000, 2), "status": "ok",
        }  # fmt: skip
        odd = r.random()
        if odd < 0.01:
            row["status"] = "error"
        elif odd < 0.02:
            row["ttft_ms"] = "oops"
        elif odd < 0.03:
            row["ttft_ms"] = None
        out.append(b'{"torn": \n' if odd > 0.99 else (json.dumps(row) + "\n").encode())
    return out


def table(n: int) -> list[bytes]:
    """The same as CSV, with its header."""
    good = [json.loads(one) for one in rows(n) if b"torn" not in one]
    frame = pl.DataFrame([{k: v for k, v in one.items() if k != "ttft_ms"} for one in good])
    ttft = [one["ttft_ms"] if isinstance(one["ttft_ms"], float) else None for one in good]
    frame = frame.with_columns(pl.Series("ttft_ms", ttft))
    return frame.write_csv().encode().splitlines(keepends=True)


def figures(diagnosis: Any, folder: Path) -> str:
    """A diagnosis as text, without what its files are called."""
    told = diagnosis.to_dict()
    told["verdict"]["experiment"] = None  # the command names the logs
    text = json.dumps(told, sort_keys=True, indent=1)
    for name in ("app.log.1", "app.log.2", "app.log"):
        text = text.replace(str(folder / name), "LOG")
    return text


# --- the follower ---------------------------------------------------------------------------------


class World:
    """A writer and its log, a follower, and all that it gave; what was not committed is undone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "app.log"
        self.file = self.log.open("ab", buffering=0)
        self.number = 0
        self.half = b""
        self.want: list[bytes] = []
        self.got: list[bytes] = []
        self.records: list[Any] = []
        self.kept: list[bytes] = []
        self.turned = 0
        self.away = False
        self.now = 0.0  # stands still while the writer may come back to an old file
        self.unseen = False  # cut short since it was looked at
        self.follower = self.started()
        self.poll()

    def started(self) -> Follower:
        return Follower([str(self.log)], records=self.records, patience=1, clock=lambda: self.now)

    def write(self, whole: bool) -> None:
        if not self.half:
            self.number += 1
            self.half = f"line {self.number} {'x' * (self.number % 7)}".encode()
            self.file.write(self.half)
        if whole:
            self.file.write(b" end\n")
            self.want.append(self.half + b" end")
            self.half = b""

    def poll(self, most: int | None = None) -> None:
        self.now += 0 if self.away else 2
        for at, piece in enumerate(self.follower.poll()):
            if at == most:
                return  # killed in the midst of it
            self.got += [one for one in piece.data.split(b"\n") if one]
            self.follower.taken(piece)
        self.records = json.loads(json.dumps([g.record() for g in self.follower.generations]))
        self.kept = list(self.got)
        self.unseen = False

    def kill(self, most: int) -> None:
        self.poll(most)
        self.follower.close()
        self.got = list(self.kept)
        self.follower = self.started()

    def rename(self) -> None:
        """Rotated by rename; the writer goes on in the old file until it is told."""
        if self.away:
            return
        self.poll()
        self.turned += 1
        os.rename(self.log, f"{self.log}.{self.turned}")
        self.away = True

    def reopen(self) -> None:
        if not self.away:
            return
        if self.half:
            # The last line of a file needs no end.
            self.want.append(self.half)
            self.half = b""
        self.file.close()
        self.file = self.log.open("ab", buffering=0)
        self.away = False
        self.poll()

    def copy_and_cut(self) -> None:
        if self.unseen:
            self.poll()
        if self.away or not self.size_known():
            return
        self.write(whole=True)
        self.turned += 1
        shutil.copy(self.log, f"{self.log}.{self.turned}")
        os.truncate(self.log, 0)
        self.unseen = True

    def cut(self) -> None:
        """Cut short without a copy: what was not read is gone, so all of it was."""
        if self.away:
            return
        if self.half:
            self.write(whole=True)
        self.poll()
        os.truncate(self.log, 0)
        self.unseen = True

    def size_known(self) -> bool:
        """Whether something of the file was read that is in the records."""
        here = os.stat(self.log)
        return any(
            one["key"] == [here.st_dev, here.st_ino] and one["offset"] and not one["ended"]
            for one in self.records
        )


ACTS = st.one_of(
    st.tuples(st.just("write"), st.booleans()),
    st.tuples(st.just("write"), st.just(True)),
    st.tuples(st.just("poll"), st.none()),
    st.tuples(st.just("kill"), st.integers(0, 2)),
    st.tuples(st.sampled_from(["rename", "reopen", "copy_and_cut", "cut"]), st.just(())),
)


@settings(max_examples=250)
@given(acts=st.lists(ACTS, max_size=40))
def test_each_line_is_given_exactly_once(acts: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "LEAST_COPY", 1)
        patch.setattr(follow, "PIECE_BYTES", 40)
        world = World(Path(place))
        for name, argument in acts:
            act = getattr(world, name)
            act() if argument == () else act(argument)
        if world.half:
            world.write(whole=True)
        world.reopen()
        for _ in range(3):
            world.poll()
        world.follower.close()
        world.file.close()
        assert sorted(world.got) == sorted(world.want)


def given_by(follower: Follower) -> list[bytes]:
    out = []
    for piece in follower.poll():
        out += piece.data.splitlines()
        follower.taken(piece)
    return out


def test_a_half_line_waits_for_its_end(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"one\ntw")
    follower = Follower([str(log)])
    assert given_by(follower) == [b"one"]
    assert given_by(follower) == []
    with log.open("ab") as file:
        file.write(b"o\n")
    assert given_by(follower) == [b"two"]


def test_a_glob_gets_new_files_and_knows_those_renamed(tmp_path: Path) -> None:
    follower = Follower([str(tmp_path / "*.log*")])
    assert given_by(follower) == []
    (tmp_path / "a.log").write_bytes(b"1\n")
    assert given_by(follower) == [b"1"]
    os.rename(tmp_path / "a.log", tmp_path / "a.log.1")
    (tmp_path / "a.log").write_bytes(b"2\n")
    (tmp_path / "b.log").write_bytes(b"3\n")
    (tmp_path / "a.log.2.gz").write_bytes(gzip.compress(b"0\n"))
    assert sorted(given_by(follower)) == [b"2", b"3"]
    with (tmp_path / "a.log.1").open("ab") as file:
        file.write(b"late\n")
    assert given_by(follower) == [b"late"]
    assert any("a.log.2.gz" in text for text in follower.remarks)


def test_a_copy_that_a_glob_matches_is_not_read_again(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    first = [b"%06d" % n for n in range(100)]
    log.write_bytes(b"\n".join(first) + b"\n")
    follower = Follower([str(tmp_path / "a.log*")])
    assert given_by(follower) == first
    with log.open("ab") as file:
        file.write(b"unread\n")
    shutil.copy(log, tmp_path / "a.log.1")
    os.truncate(log, 0)
    with log.open("ab") as file:
        file.write(b"new\n")
    assert sorted(given_by(follower)) == [b"new", b"unread"]
    assert given_by(follower) == []


def test_a_file_that_was_cut_short_and_is_longer_again_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    follower = Follower([str(log)])
    assert given_by(follower) == [b"one"]
    log.write_bytes(b"other\nthan\nbefore\n")  # the same inode
    assert given_by(follower) == [b"other", b"than", b"before"]


def test_a_file_that_was_away_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    follower = Follower([str(log)], patience=0)
    assert given_by(follower) == [b"one"]
    os.rename(log, tmp_path / "b")
    assert given_by(follower) == []
    assert follower.generations[0].ended
    os.rename(tmp_path / "b", log)
    with log.open("ab") as file:
        file.write(b"two\n")
    assert given_by(follower) == [b"two"]
    again = Follower([str(log)], records=[one.record() for one in follower.generations])
    assert given_by(again) == []
    again.again(again.generations[-1])
    assert given_by(again) == [b"two"]


@pytest.mark.parametrize(
    "name", ["-", "s3://b/log.jsonl", "pipe", "log.gz", "none.log", "t.parquet"]
)
def test_what_cannot_be_followed_is_named(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"{}\n"))
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "t.parquet")
    path = name if name == "-" or ":" in name else str(tmp_path / name)
    with pytest.raises((UsageError, InputError)) as found:
        Follower([path])
    assert path in str(found.value)


# --- the figures ----------------------------------------------------------------------------------


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is read piece by piece from 60 kB on, so that short ones are."""
    monkeypatch.setattr(taken, "SETTLED_BYTES", 60_000)


LOGS: dict[str, tuple[Any, bool]] = {
    "flat": (lambda: rows(2400), True),
    "table": (lambda: table(2400), True),
    "lightllm": (lambda: _more("lightllm.log", 40), True),
    "vllm-log": (lambda: (SAMPLES / "vllm-log.log").read_bytes().splitlines(keepends=True), False),
}


def _more(name: str, times: int) -> list[bytes]:
    lines = (SAMPLES / name).read_bytes().splitlines(keepends=True)
    # Other requests each time, of the same kind.
    return [one.replace(b":req-", b":r%d-" % n) for n in range(times) for one in lines]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", LOGS)
def test_figures_are_those_of_diagnose(tmp_path: Path, name: str) -> None:
    """With rotation by rename and by copy, half lines, late ones, and restarts."""
    make, piecewise = LOGS[name]
    lines = make()
    header = lines[0] if name == "table" else b""
    r = random.Random(5)
    log = tmp_path / "app.log"
    log.write_bytes(header)
    state = str(tmp_path / "state")
    watch = Watch([str(log)], state=state, patience=0)
    at, turns = len(header and b"x"), {len(lines) // 2: "rename", len(lines) * 4 // 5: "copy"}
    seen = False
    while at < len(lines):
        upto = min([at + r.randint(1, len(lines) // 4), *(t for t in turns if t > at), len(lines)])
        data = b"".join(lines[at:upto])
        half = r.randint(0, len(data))
        for some in (data[:half], data[half:]):
            with log.open("ab") as file:
                file.write(some)
            watch.step()
        seen = seen or any(one.rows is not None for one in watch.taken.values())
        at = upto
        if turns.get(at) == "rename":
            os.rename(log, tmp_path / "app.log.1")
            log.write_bytes(header)
        elif turns.get(at) == "copy":
            shutil.copy(log, tmp_path / "app.log.2")
            os.truncate(log, 0)
            log.write_bytes(header)
        if r.random() < 0.3:
            watch.close()
            watch = Watch([str(log)], state=state, patience=0)
    watch.step()
    got = watch.diagnose()
    watch.close()
    assert seen == piecewise
    paths = [str(tmp_path / one) for one in ("app.log.1", "app.log.2", "app.log")]
    assert figures(got, tmp_path) == figures(diagnose(*paths, draw=False), tmp_path)
    # And by a process that begins with the state alone, of logs that are gone.
    for path in paths[:2]:
        os.unlink(path)
    again = Watch([str(log)], state=state, patience=0)
    again.step()
    assert figures(again.diagnose(), tmp_path) == figures(got, tmp_path)
    again.close()


def test_prompts_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taken, "MEASURED_BYTES", 60_000)
    log = tmp_path / "app.log"
    lines = []
    for one in rows(400):
        if b"torn" not in one:
            row = json.loads(one)
            row["prompt"] = f"{SECRET} " * 40 + row["session_id"]
            lines.append((json.dumps(row) + "\n").encode())
    state = tmp_path / "state"
    watch = Watch([str(log.parent / "app.*")], state=str(state))
    for at in range(0, len(lines), 50):
        with log.open("ab") as file:
            file.writelines(lines[at : at + 50])
        watch.step()
        for part in state.iterdir():
            assert SECRET.encode() not in part.read_bytes()
            if part.suffix == ".parquet":
                assert SECRET not in str(pl.read_parquet(part).to_dicts())
    found = watch.diagnose()
    assert found is not None
    assert figures(found, tmp_path) == figures(diagnose(str(log), draw=False), tmp_path)
    watch.close()


@pytest.mark.usefixtures("soon")
def test_what_was_not_committed_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended between a part and the journal: nothing is lost, nothing doubled."""
    log, state = tmp_path / "app.log", str(tmp_path / "state")
    lines = rows(1500)
    log.write_bytes(b"".join(lines[:700]))
    watch = Watch([str(log)], state=state)
    watch.step()
    with log.open("ab") as file:
        file.writelines(lines[700:])
    with monkeypatch.context() as patch:

        def killed(*_: Any) -> None:
            raise KeyboardInterrupt

        assert watch.store is not None
        patch.setattr(watch.store, "commit", killed)
        with pytest.raises(KeyboardInterrupt):
            watch.step()
    watch.close()
    assert len(list((tmp_path / "state").glob("*.parquet"))) > 1
    watch = Watch([str(log)], state=state)
    assert len(list((tmp_path / "state").glob("*.parquet"))) == 1
    watch.step()
    assert figures(watch.diagnose(), tmp_path) == figures(diagnose(str(log), draw=False), tmp_path)
    watch.close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": 99}, "another version"),
        ({"tool": "7"}, "another version"),
        ({"schema": "x"}, "no journal"),
        ({}, "other options"),
    ],
)
def test_a_state_of_something_else_is_an_error(
    tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    log, state = tmp_path / "app.log", tmp_path / "state"
    log.write_bytes(b"".join(rows(30)))
    watch = Watch([str(log)], state=str(state))
    watch.step()
    with pytest.raises(UsageError, match="another watch"):
        Watch([str(log)], state=str(state))
    watch.close()
    journal = state / "journal.json"
    journal.write_text(json.dumps({**json.loads(journal.read_text()), **change}))
    with pytest.raises(InputError, match=says):
        Watch([str(log)], state=str(state), format=None if change else "flat")


def test_a_log_that_nobody_knows_is_an_error_once_there_is_enough(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"what is this\n" * 5)
    watch = Watch([str(log)])
    watch.step()
    assert watch.diagnose() is None
    assert watch.view().remarks
    with log.open("ab") as file:
        file.write(b"what is this\n" * 500)
    watch._due.clear()
    with pytest.raises(InputError):
        watch.step()


# --- killed at any moment -------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of a process."""


def test_killed_at_each_step_of_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each call that makes something lasting, one after the other."""
    monkeypatch.setattr(taken, "SETTLED_BYTES", 20_000)
    lines = [one for one in rows(330, start=1_790_000_000.0) if b"torn" not in one]
    reached = True
    nth = -1
    while reached:
        nth += 3
        place = tmp_path / str(nth)
        place.mkdir()
        log, state = place / "app.log", str(place / "state")
        log.touch()
        left = [nth]
        reached = False

        def count(of: Any, left: list[int] = left) -> Any:
            def call(*args: Any, **more: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed
                return of(*args, **more)

            return call

        watch = Watch([str(log)], state=state, patience=0)
        for at in range(0, len(lines), 110):
            with log.open("ab") as file:
                file.writelines(lines[at : at + 110])
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", count(os.fsync))
                patch.setattr(Path, "replace", count(Path.replace))
                patch.setattr(Path, "unlink", count(Path.unlink))
                try:
                    watch.step(last=True)
                except Killed:
                    reached = True
            if left[0] == 0:
                watch.close()
                watch = Watch([str(log)], state=state, patience=0)
                left[0] = -1
            if at == 110:
                os.rename(log, place / "app.log.1")
                log.touch()
        watch.step(last=True)
        got = watch.log()
        watch.close()
        again = Watch([str(log)], state=state, patience=0)
        again.step(last=True)
        kept = again.log()
        again.close()
        want = read(str(place / "app.log.1"), str(log))
        for one in (got, kept):
            assert one is not None
            assert one.requests.equals(want.requests)
            assert [x.rows_read for x in one.inputs] == [x.rows_read for x in want.inputs]
    assert nth > 20


#: A watch as it is started by hand, but that reads short logs piece by piece as well.
STARTED = (
    "import sys; from ttftdoctor.watching import taken; taken.SETTLED_BYTES = 60_000; "
    "from ttftdoctor.cli import main; sys.argv[0] = 'ttftdoctor'; main()"
)


@pytest.mark.parametrize("name", ["flat", "table", "vllm-log"])
def test_killed_at_random_moments(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed again and again beside one that writes and rotates its log."""
    monkeypatch.setattr(taken, "SETTLED_BYTES", 60_000)
    lines = LOGS[name][0]()
    header = lines[:1] if name == "table" else []
    log, state = tmp_path / "app.log", tmp_path / "state"
    log.write_bytes(b"".join(header))
    r = random.Random(11)
    command = [sys.executable, "-c", STARTED, "watch", str(log), "--state", str(state),
               "--interval", "100ms", "--quiet"]  # fmt: skip
    here = os.environ | {"PYTHONPATH": str(SAMPLES.parent)}

    def committed() -> int:
        """Bytes of the log as it is now that the state has."""
        try:
            told = json.loads((state / "journal.json").read_text())
        except FileNotFoundError:
            return 0
        live = [one["generation"] for one in told["generations"] if "generation" in one]
        inode = os.stat(log).st_ino
        return sum(one["offset"] for one in live if one["key"][1] == inode)

    process = subprocess.Popen(command, env=here)
    kills = 0
    at = len(header)
    turns = {len(lines) * 2 // 5: "rename", len(lines) * 4 // 5: "copy"}
    step = len(lines) // 20
    while at < len(lines):
        upto = min([at + step, *(turn for turn in turns if turn > at), len(lines)])
        data = b"".join(lines[at:upto])
        half = r.randint(0, len(data))
        for some in (data[:half], data[half:]):
            with log.open("ab", buffering=0) as file:
                file.write(some)
            time.sleep(0.02)
        at = upto
        if at in turns or r.random() < 0.05:
            until = time.monotonic() + 60
            # What nobody has seen before it is copied and cut cannot be known again.
            while committed() < 300 and process.poll() is None and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(r.random() * 0.3)
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            if turns.get(at) == "rename":
                os.rename(log, tmp_path / "app.log.1")
                log.write_bytes(b"".join(header))
            elif turns.get(at) == "copy":
                shutil.copy(log, tmp_path / "app.log.2")
                os.truncate(log, 0)
                log.write_bytes(b"".join(header))
            process = subprocess.Popen(command, env=here)
    process.kill()
    process.wait()
    assert kills >= 2
    watch = Watch([str(log)], state=str(state), patience=0)
    watch.step()
    got = watch.diagnose()
    watch.close()
    paths = [str(tmp_path / one) for one in ("app.log.1", "app.log.2", "app.log")]
    assert figures(got, tmp_path) == figures(diagnose(*paths, draw=False), tmp_path)


# --- what is seen ---------------------------------------------------------------------------------


def test_the_last_minutes_against_the_hour_before() -> None:
    minutes = Minutes()
    start = [1_790_000_000_000_000 + i * 1_000_000 for i in range(3900)]
    ttft = [100_000 if i < 3600 else 400_000 for i in range(3900)]
    frame = pl.DataFrame(
        {"start": start, "ttft_us": ttft, "e2e_us": [2_000_000] * 3900,
         "input_tokens": [100] * 3900, "cached_tokens": [50] * 3900}
    )  # fmt: skip
    for at in range(0, 3900, 500):
        minutes.add(frame[at : at + 500])
    lately = Lately([minutes])
    now, before = lately.lately(), lately.before()
    assert now.per_s == pytest.approx(1, rel=0.05)
    assert before.per_s == pytest.approx(1, rel=0.05)
    assert now.ttft_p50_s == pytest.approx(0.4, rel=0.015)
    assert before.ttft_p95_s == pytest.approx(0.1, rel=0.015)
    assert now.cached_share == 0.5
    assert now.in_flight == pytest.approx(2, rel=0.05)
    assert lately.newest_us == start[-1] + 2_000_000
    drawn = lately.drawn()
    assert len(drawn) == 65
    assert drawn[0] == pytest.approx(0.1, rel=0.015)
    assert drawn[-1] == pytest.approx(0.4, rel=0.015)


def drawn(watch: Watch, width: int, height: int = 24) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, legacy_windows=False)
    console.print(Page(width, height, plain=False).page(watch.view()))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_fits(tmp_path: Path, language: Any) -> None:
    log = tmp_path / "app.log"
    log.touch()
    with speaking(language):
        watch = Watch([str(log)])
        watch.step()
        assert drawn(watch, 80)
        log.write_bytes(b"".join(rows(1500, start=time.time() - 500)))
        watch.step()
        watch.diagnose()
        for width in (80, 140):
            page = drawn(watch, width)
            assert len(page) <= 24
            assert max(map(cell_len, page)) <= width
            text = "\n".join(page)
            assert "1,500" in text
            assert "█" in text
            assert watch.diagnosis is not None
            assert watch.diagnosis.verdict.primary_cause in text
        said = line(watch.view())
        assert "\n" not in said
        assert "TTFT p50" in said
    watch.close()


def test_the_command(tmp_path: Path) -> None:
    log, metrics = tmp_path / "app.log", tmp_path / "m.prom"
    log.write_bytes(b"".join(rows(300)))
    arguments = ["watch", str(log), "--state", str(tmp_path / "s"), "--for", "200ms",
                 "--interval", "100ms", "--openmetrics", str(metrics)]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "300 rows = " in done.stdout
    assert "Where the mean TTFT goes" in done.stdout
    assert metrics.read_text().endswith("# EOF\n")
    again = CliRunner().invoke(app, [*arguments, "--quiet"])
    assert (again.exit_code, again.stdout) == (0, "")
    other = CliRunner().invoke(app, [*arguments, "--format", "vllm-log"])
    assert other.exit_code == 2
    assert "other options" in other.output


def test_interrupted_it_ends_with_the_report(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_bytes(b"".join(rows(300)))
    process = subprocess.Popen(
        [sys.executable, "-m", "ttftdoctor", "watch", str(log), "--interval", "100ms"],
        stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(SAMPLES.parent)},
    )  # fmt: skip
    assert process.stdout is not None
    assert "300 rows" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "In short" in rest
