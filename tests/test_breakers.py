"""Planted breakers are named, with place and cost; clean logs of many shapes have none."""

from __future__ import annotations

import base64
import datetime as dt
import email.utils
import itertools
import json
import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ttftdoctor.prefixes.breakers import FIXES, KINDS, Breaker, Found, find, look
from ttftdoctor.prefixes.kinds import agree, differ, differ_tools, is_id, spots
from ttftdoctor.prefixes.pairs import _kept_behind, _listed
from ttftdoctor.prefixes.texts import (
    book,
    cut,
    first_difference,
    last_difference,
    latest_before,
    piece,
)

Part = tuple[str, str]
Prompt = list[Part]
PARTS = pl.List(pl.Struct({"section": pl.String, "text": pl.String}))
BYTES_PER_TOKEN = 4

VOCABULARY = (
    "answer invoice river harbour parcel delay refund policy window garden engine signal paper "
    "market bridge copper winter ticket driver letter carbon method border random planet silver "
    "option figure number school family result theory season memory yellow forest museum canvas"
)
WORDS = VOCABULARY.split()
NO_IDS = (
    "helpful internationalization getUserInformation2 camelCaseWordsHere gpt-4o-mini "
    "claude-sonnet-4-5 ISO8601 en-US HTTP2 12345678 deadbeef snake_case_name README PostgreSQL "
    "JavaScript 3.11 e-mail user_profile_v2"
)


def prose(seed: int | str, words: int = 60) -> str:
    """Text that no other seed has."""
    rng = random.Random(f"prose {seed}")
    return " ".join(rng.choice(WORDS) for _ in range(words))


RULES = prose("rules", 300)
START = dt.datetime(2026, 11, 30, 8, 17, 6, tzinfo=dt.UTC)


def tool(name: str, note: str = "") -> dict[str, object]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name}: {prose(name, 25)}{note}",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["query"],
            },
        },
    }


class Log:
    """Requests in order of arrival, as the frames that breakers are looked for in."""

    def __init__(self) -> None:
        self.prompts: list[Prompt | None] = []
        self.sessions: list[int | None] = []
        self.tenants: list[str | None] = []
        self.models: list[str] = []

    def add(
        self, prompt: Prompt | None, session: int | None = None, tenant: str | None = None,
        model: str = "m",
    ) -> None:  # fmt: skip
        self.prompts.append(prompt)
        self.sessions.append(session)
        self.tenants.append(tenant)
        self.models.append(model)

    def frames(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        n = len(self.prompts)
        tokens = [size(p) // BYTES_PER_TOKEN if p is not None else 100 for p in self.prompts]
        requests = pl.DataFrame(
            {
                "row": range(n), "source": [0] * n, "line": range(1, n + 1),
                "start": range(0, n * 1_000_000, 1_000_000), "session": self.sessions,
                "model": self.models, "tenant": self.tenants, "route": [None] * n,
                "input_tokens": tokens, "output_tokens": [20] * n,
                "prefix_blocks": [None] * n, "block_tokens": [None] * n,
            },
            schema_overrides={
                "session": pl.Int64, "tenant": pl.String, "route": pl.String,
                "prefix_blocks": pl.List(pl.UInt64), "block_tokens": pl.UInt32,
                "row": pl.Int64, "line": pl.Int64,
            },
        )  # fmt: skip
        return requests, parts_frame(self.prompts)

    def look(self, *, show_text: bool = False) -> Found:
        return look(*self.frames(), show_text=show_text)


def parts_frame(prompts: Sequence[Prompt | None]) -> pl.DataFrame:
    listed = [None if p is None else [{"section": s, "text": t} for s, t in p] for p in prompts]
    return pl.DataFrame(
        {"row": range(len(prompts)), "parts": listed}, schema={"row": pl.Int64, "parts": PARTS}
    )


def size(prompt: Prompt) -> int:
    return sum(len(text.encode()) for _, text in prompt)


def rendered(prompt: Prompt) -> bytes:
    return "".join(text for _, text in prompt).encode()


def common(a: Prompt, b: Prompt) -> int:
    """Bytes two prompts have in common, the obvious way."""
    return len(beginning(rendered(a), rendered(b)))


def beginning(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
    """What two sequences have in common at their beginning, one by one."""
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    return [x for x, _ in pairs]


Head = Callable[[int, int, int], Prompt]  # session, turn, number of the request


def system(text: str) -> Prompt:
    return [("system", f"system\n{text}")]


def chats(
    head: Head, *, sessions: int = 6, turns: int = 5, known: bool = True,
    say: Callable[[int, int], str] | None = None, tenants: bool = False,
) -> Log:  # fmt: skip
    """Conversations that take turns, each with one more exchange."""
    log = Log()
    say = say or (lambda s, t: prose(f"user {s} {t}", 20))
    number = 0
    for turn in range(turns):
        for session in range(sessions):
            history: Prompt = []
            for t in range(turn):
                history.append(("messages", f"user\n{say(session, t)}"))
                history.append(("messages", f"assistant\n{prose(f'reply {session} {t}', 40)}"))
            history.append(("messages", f"user\n{say(session, turn)}"))
            log.add(
                head(session, turn, number) + history,
                session if known else None,
                f"tenant {session}" if tenants else None,
            )
            number += 1
    return log


def singles(head: Head, n: int = 30) -> Log:
    """Requests of one turn each, in no session."""
    log = Log()
    for i in range(n):
        log.add([*head(i, 0, i), ("messages", f"user\n{prose(f'question {i}', 15)}")])
    return log


def only(found: Found) -> Breaker:
    assert len(found.breakers) == 1, found.breakers
    return found.breakers[0]


# --- kinds, by what stands in the system prompt ---------------------------------------------------


def rng(i: int) -> random.Random:
    return random.Random(f"value {i}")


def ulid(i: int) -> str:
    return "01" + "".join(rng(i).choices("0123456789ABCDEFGHJKMNPQRSTVWXYZ", k=24))


def at(i: int) -> dt.datetime:
    return START + dt.timedelta(seconds=61 * i)


TIMES: dict[str, Callable[[int], str]] = {
    "iso": lambda i: at(i).isoformat(),
    "iso z": lambda i: at(i).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "iso micro": lambda i: (at(i) + dt.timedelta(microseconds=i * 37)).isoformat(sep=" "),
    "rfc 2822": lambda i: email.utils.format_datetime(at(i)),
    "epoch s": lambda i: str(int(at(i).timestamp())),
    "epoch float": lambda i: f"{at(i).timestamp() + i / 7:.6f}",
    "epoch ms": lambda i: str(int(at(i).timestamp() * 1000) + i),
    "clock": lambda i: at(i).strftime("%H:%M:%S"),
    "clock 12": lambda i: at(i).strftime("%I:%M:%S %p"),
    "minute": lambda i: at(i).strftime("%d/%m/%Y %H:%M"),
    "compact": lambda i: at(i).strftime("%Y%m%dT%H%M%SZ"),
    "words": lambda i: (START + dt.timedelta(days=i)).strftime("Today is %A, %B %d, %Y"),
    "german": lambda i: (START + dt.timedelta(days=i)).strftime("%d.%m.%Y"),
    "chinese": lambda i: (START + dt.timedelta(days=i)).strftime("%Y年%m月%d日"),
    "hours": lambda i: at(i).strftime("Il est %Hh%Mm%S."),
    "ago": lambda i: f"Last seen {37 * i % 59 + 60 * i + 1} minutes ago",
    "long": lambda i: at(i).strftime("%d %B %Y at %H:%M:%S UTC"),
}
IDS: dict[str, Callable[[int], str]] = {
    "uuid": lambda i: str(uuid.UUID(int=rng(i).getrandbits(128), version=4)),
    "ulid": ulid,
    "hex": lambda i: f"{rng(i).getrandbits(128):032x}",
    "short hex": lambda i: f"{rng(i).getrandbits(48):012x}",
    "base64": lambda i: base64.b64encode(rng(i).randbytes(18)).decode(),
    "req": lambda i: "req_" + "".join(rng(i).choices("abcXYZ0189KLMqrs", k=16)),
    "chatcmpl": lambda i: f"chatcmpl-{rng(i).getrandbits(96):024x}",
    "session #": lambda i: f"session #{1000 + rng(i).randrange(9000)}",
    "nonce": lambda i: f"nonce: {rng(i).randrange(10**5, 10**6)}",
}
LEADS = ("", "You are a helpful clerk. Now: ", f"{prose('lead', 80)}\nContext: ")


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("kind", "made"),
    [("time", f) for f in TIMES.values()] + [("id", f) for f in IDS.values()],
    ids=[f"time {n}" for n in TIMES] + [f"id {n}" for n in IDS],
)
def test_what_changes_in_the_system_prompt_is_named(
    kind: str, made: Callable[[int], str], known: bool
) -> None:
    lead = "You are a helpful clerk. "
    log = chats(lambda s, t, i: system(f"{lead}{made(i)}. {RULES}"), known=known)
    found = log.look()
    breaker = only(found)
    assert (breaker.kind, breaker.section, breaker.path) == (kind, "system", "system/0")
    assert breaker.habit == "unique"
    assert breaker.requests >= 28  # all but the first; values may begin alike by chance
    assert abs(breaker.position_tokens - (7 + len(lead)) / 4) < 12
    assert found.pairs == 29


@pytest.mark.parametrize("lead", LEADS)
def test_position_and_tokens_are_those_of_an_obvious_count(lead: str) -> None:
    """Turns: what the earlier prompt held, less what is common and the value of its own; else the
    head they share.
    """
    made = IDS["uuid"]
    own = 36
    log = chats(lambda s, t, i: system(f"{lead}{made(i)} {RULES}"), sessions=3, turns=4)
    breaker = only(log.look())
    lost: dict[int, float] = {}
    for row, prompt in enumerate(log.prompts):
        assert prompt is not None
        shared = max((common(p, prompt) for p in log.prompts[:row] if p), default=0)
        if row >= 3:
            earlier = log.prompts[row - 3]
            assert earlier is not None
            lost[row] = (size(earlier) - shared - own) / BYTES_PER_TOKEN
        elif row:
            lost[row] = (size(prompt[:1]) - shared - own) / BYTES_PER_TOKEN
    got = dict(breaker.lost.select("row", "tokens").iter_rows())
    assert got.keys() == lost.keys()
    for row, tokens in lost.items():
        assert got[row] == pytest.approx(tokens, abs=2)
    assert breaker.tokens_lost == sum(got.values())
    assert breaker.within_session == 9
    assert breaker.sessions == 3
    assert breaker.position_tokens == pytest.approx((7 + len(lead)) / 4, abs=2)


def test_a_counter_counts() -> None:
    log = chats(lambda s, t, i: system(f"Message {17 + t} of this chat. {RULES}"))
    assert [b.kind for b in log.look().breakers] == ["counter"]
    log = singles(lambda s, t, i: system(f"Tokens left: {100000 - 311 * i}. {RULES}"))
    breaker = only(log.look())
    assert (breaker.kind, breaker.habit, breaker.within_session) == ("counter", "unique", 0)


@pytest.mark.parametrize("says", ["This is request #{} today.", "Message #{}.", "Trace number {}."])
def test_a_number_that_rises_counts_whatever_it_is_called(says: str) -> None:
    for log in (
        chats(lambda s, t, i: system(f"{says.format(i + 1)} {RULES}")),
        singles(lambda s, t, i: system(f"{says.format(i + 1)} {RULES}")),
    ):
        assert only(log.look()).kind == "counter"


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("other", lambda r: f"Score so far {r.random():.4f}"),
        ("other", lambda r: f"Outside it is {r.uniform(10, 30):.1f} degrees"),
        (
            "other",
            lambda r: f"Balance: {r.randint(1, 9)},{r.randint(100, 999)}.{r.randint(10, 99)}",
        ),
        ("id", lambda r: "From " + ".".join(str(r.randrange(256)) for _ in range(4))),
        ("id", lambda r: f"Ticket {r.randrange(10**5, 10**6)}"),
    ],
)
def test_amounts_are_no_ids(kind: str, made: Callable[[random.Random], str]) -> None:
    breaker = only(chats(lambda s, t, i: system(f"{made(rng(i))}. {RULES}")).look())
    assert (breaker.kind, breaker.habit, breaker.also) == (kind, "unique", ())


def test_fields_of_users_kill_sharing_across_sessions_only() -> None:
    names = [f"{a} {b}" for a in ("Ann", "Bob", "Cid", "Dee") for b in ("Smith", "Wu", "Roy")]
    log = chats(lambda s, t, i: system(f"You help {names[s]}, en. {RULES}"), sessions=12)
    breaker = only(log.look())
    assert (breaker.kind, breaker.section) == ("user_field", "system")
    assert breaker.within_session == 0
    assert breaker.requests == 11
    log = chats(
        lambda s, t, i: system(f"User id: {s * 7919 % 1000}\nLocale: de\n{RULES}"), sessions=12
    )
    assert only(log.look()).kind == "user_field"


@pytest.mark.parametrize("known", [True, False])
def test_whitespace(known: bool) -> None:
    spaces = (" ", "  ", "\n", "\t", " \n")
    log = chats(
        lambda s, t, i: system(f"You are a clerk.{spaces[i % 5]}Be kind. {RULES}"), known=known
    )
    assert {b.kind for b in log.look().breakers} == {"whitespace"}


def test_forms_of_one_text_across_conversations() -> None:
    ends = RULES.replace(" a", "\na"), RULES.replace(" a", "\r\na")
    breaker = only(singles(lambda s, t, i: system(ends[i % 2])).look())
    assert (breaker.kind, breaker.habit) == ("whitespace", "thrashing")
    # Line ends make the end of the head longer, by which templates are told.
    lines = "\n".join(prose(f"line {k}", 3) for k in range(60))
    ends = lines, lines.replace("\n", "\r\n")
    breaker = only(singles(lambda s, t, i: system(ends[i // 2 % 2])).look())
    assert (breaker.kind, breaker.habit) == ("whitespace", "thrashing")
    forms = "Café", "Cafe\u0301"
    breaker = only(chats(lambda s, t, i: system(f"{forms[i % 2]} {RULES}"), sessions=5).look())
    assert breaker.kind == "whitespace"


def test_examples_that_follow_a_clock_are_lost_with_it() -> None:
    shots = [("messages", f"user\n{prose('one', 50)}"), ("messages", f"assistant\n{prose('two')}")]
    log = singles(lambda s, t, i: [*system(f"At {TIMES['iso'](i)}"), *shots])
    breaker = only(log.look())
    assert (breaker.kind, breaker.requests) == ("time", 29)
    assert breaker.tokens_lost == pytest.approx(29 * size(shots) / 4, rel=0.05)


def test_a_field_of_the_user_with_few_values() -> None:
    names = ("Ann", "Bob", "Cid")
    breaker = only(singles(lambda s, t, i: system(f"Name: {names[i % 3]}. {RULES}")).look())
    assert (breaker.kind, breaker.habit, breaker.requests) == ("user_field", "thrashing", 29)
    assert breaker.tokens_lost < 0.1 * breaker.tokens_apart
    # Without a name for it, few values that come back are several templates ...
    log = singles(lambda s, t, i: system(f"Be {('kind', 'terse', 'long')[i % 3]}. {RULES}"))
    assert log.look().breakers == ()
    # ... unless each tenant has one.
    log.tenants = [f"tenant {i % 3}" for i in range(30)]
    assert only(log.look()).kind == "user_field"


@pytest.mark.parametrize("turns", [1, 6])
def test_a_deploy_is_paid_once(turns: int) -> None:
    other = f"{RULES[:200]} Be polite. {RULES[200:]}"
    log = chats(lambda s, t, i: system(RULES if i < 3 * turns else other), sessions=6, turns=turns)
    breaker = only(log.look())
    assert (breaker.kind, breaker.habit) == ("other", "once")
    assert breaker.requests <= 6


@pytest.mark.parametrize("turns", [1, 6])
def test_a_new_version_counts_nothing(turns: int) -> None:
    def head(s: int, t: int, i: int) -> Prompt:
        return system(f"Prompt revision {14 if i < 3 * turns else 15}. {RULES}")

    breaker = only(chats(head, sessions=6, turns=turns).look())
    assert (breaker.kind, breaker.habit) == ("other", "once")


def test_a_clock_that_some_conversations_have() -> None:
    """The line is there or not, and not only its value differs."""

    def log(some: Callable[[int, int], bool]) -> Log:
        def head(s: int, t: int, i: int) -> Prompt:
            line = f"Current time: {TIMES['iso'](i)}\n" if some(s, i) else ""
            return system(f"{prose('lead')}\n{line}{RULES}")

        return chats(head, sessions=9)

    for some in (lambda s, i: s % 3 == 0, lambda s, i: rng(i).random() < 0.3):
        assert {b.kind for b in log(some).look().breakers} == {"time"}


def test_modes_that_take_turns() -> None:
    modes = [f"Mode {prose(f'mode {k}', 80)}" for k in range(2)]
    breaker = only(chats(lambda s, t, i: system(f"{modes[t % 2]} {RULES}"), turns=8).look())
    assert (breaker.kind, breaker.habit) == ("changing_context", "thrashing")
    assert breaker.within_session == breaker.requests == 42


def test_documents_before_the_instructions() -> None:
    log = singles(lambda s, t, i: system(f"Documents:\n{prose(f'doc {i}', 250)}\n{RULES}"))
    breaker = only(log.look())
    assert (breaker.kind, breaker.habit) == ("changing_context", "unique")
    assert breaker.tokens_lost == pytest.approx(29 * len(RULES) / 4, rel=0.02)
    log = chats(lambda s, t, i: system(f"{RULES}\nFound:\n{prose(f'doc {i}', 250)}"))
    breaker = only(log.look())
    assert breaker.kind == "changing_context"
    assert breaker.within_session == breaker.requests == 24


DOCUMENTS: dict[str, Callable[[int, int], str]] = {
    "doc": lambda i, k: f"[doc {rng(i * 9 + k).randrange(900)}] ",
    "date": lambda i, k: f"{at(977 * (i * 9 + k)).date()}: ",
    "number": lambda i, k: f"{rng(i * 9 + k).randrange(9999)}. ",
    "url": lambda i, k: f"Source: https://ex.com/{rng(i * 9 + k).getrandbits(32):08x} ",
    "title": lambda i, k: f"# {prose(f'title {i} {k}', 2)}\n",
    "none": lambda i, k: "",
}


def documents(i: int, lead: Callable[[int, int], str]) -> str:
    return "\n\n".join(f"{lead(i, k)}{prose(f'doc {i} {k}', 120)}" for k in range(3))


Shape = Callable[[str, str], Prompt]  # the documents, the question
BEFORE_RULES: dict[str, Shape] = {
    "system": lambda docs, q: [*system(f"{docs}\n\n{RULES}"), ("messages", f"user\n{q}")],
    "message": lambda docs, q: [("messages", f"user\nContext:\n{docs}\n\n{RULES}\n\n{q}")],
    "messages": lambda docs, q: [
        ("messages", f"user\n{docs}"), ("messages", f"user\n{RULES}"), ("messages", f"user\n{q}"),
    ],
    "text": lambda docs, q: [("messages", f"{docs}\n\n{RULES}\n\nuser: {q}")],
    "behind a head": lambda docs, q: [
        *system("You are a clerk."), ("messages", f"user\n{docs}\n{RULES}\n{q}"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("lead", DOCUMENTS.values(), ids=DOCUMENTS)
@pytest.mark.parametrize("shape", BEFORE_RULES.values(), ids=BEFORE_RULES)
def test_documents_before_what_stays(shape: Shape, lead: Callable[[int, int], str]) -> None:
    log = Log()
    for i in range(30):
        log.add(shape(documents(i, lead), f"Question: {prose(f'q {i}', 12)}"))
    breaker = only(log.look())
    assert (breaker.kind, breaker.habit, breaker.requests) == ("changing_context", "unique", 29)
    assert breaker.tokens_lost == pytest.approx(29 * len(RULES) / 4, rel=0.02)


@pytest.mark.parametrize("lead", DOCUMENTS.values(), ids=DOCUMENTS)
def test_documents_behind_what_stays_are_fine(lead: Callable[[int, int], str]) -> None:
    """Also where they come back, end in a short sentence, or stand before a question only."""
    shapes: list[Shape] = [
        lambda docs, q: [*system(RULES), ("messages", f"user\n{docs}\n\n{q}")],
        lambda docs, q: [("messages", f"{RULES}\n\n{docs}\n\n{q} Answer in JSON, and be brief.")],
        lambda docs, q: [("messages", f"user\n{docs}"), ("messages", f"user\n{q}")],
    ]
    for shape, several in itertools.product(shapes, (5, 30)):
        log = Log()
        for i in range(30):
            log.add(shape(documents(i % several, lead), f"Question: {prose(f'q {i}', 12)}"))
        assert log.look().breakers == ()


def test_examples_that_are_looked_up_are_no_common_text() -> None:
    """Short messages that most prompts have, each time at another place: none is long enough."""
    log = Log()
    for i in range(30):
        picked = rng(i).sample(range(12), 10)
        shots = [("messages", f"user\n{prose(f'shot {k}', 25)}") for k in picked]
        log.add([*system("You are a clerk."), *shots, ("messages", f"user\n{prose(i)}")])
    assert log.look().breakers == ()
    # A text is not found across the border of two messages.
    for i in range(30):
        log.add([*system("A clerk."), ("messages", f"{prose(i)}\n{RULES[:150]}"),
                 ("messages", f"{RULES[150:300]}\n{prose(f'end {i}')}")])  # fmt: skip
    assert log.look().breakers == ()


def test_a_few_texts_in_front_of_what_stays_are_several_templates() -> None:
    roles = [prose(f"role {k}", 100) for k in range(6)]
    log = Log()
    for i in range(60):
        log.add([("messages", f"You are {roles[i * 7 % 6]}\n{RULES}\n{prose(f'q {i}', 12)}")])
    assert log.look().breakers == ()


@pytest.mark.parametrize("known", [True, False])
def test_what_changes_itself_could_not_be_shared(known: bool) -> None:
    """A long file in the midst of the system prompt: only what stands behind it is lost."""
    lead = prose("lead", 50)
    log = chats(
        lambda s, t, i: system(f"{lead}\n<file>{prose(f'file {i}', 900)}</file>\n{RULES}"),
        known=known,
    )  # fmt: skip
    breaker = only(log.look())
    assert (breaker.kind, breaker.requests) == ("changing_context", 29)
    want = 0.0
    for row, prompt in enumerate(log.prompts[1:], 1):
        assert prompt is not None
        earlier = log.prompts[row - 6] if row >= 6 else None
        history = sum(len(text) for _, text in earlier[1:]) if earlier else 0
        want += (len(f"</file>\n{RULES}") + history) / BYTES_PER_TOKEN
    assert breaker.tokens_lost == pytest.approx(want, rel=0.01)


def test_a_clock_before_a_file_costs_all_but_the_two() -> None:
    log = chats(
        lambda s, t, i: [
            *system(f"It is {TIMES['iso'](i)}. {RULES}"),
            ("system", f"{prose('second', 60)}\n{prose(f'file {i}', 900)}\n{RULES}"),
        ],
        sessions=3, turns=3,
    )  # fmt: skip
    breaker = only(log.look())
    assert breaker.kind == "time"
    for row, tokens in breaker.lost.select("row", "tokens").iter_rows():
        earlier = log.prompts[row - 3] if row >= 3 else None
        history = sum(len(text) for _, text in earlier[2:]) if earlier else 0
        stays = len(f". {RULES}{prose('second', 60)}\n\n{RULES}") + history
        assert tokens == pytest.approx(stays / 4, abs=12)


# --- tools ----------------------------------------------------------------------------------------

TOOLS = [tool(name) for name in ("search", "fetch", "write", "plan", "mail", "read")]


def tools_of(listed: Sequence[object], *, one: bool) -> Prompt:
    if one:
        return [("tools", json.dumps(listed))]
    return [("tools", json.dumps(t)) for t in listed]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("one", [True, False])
def test_tools_in_another_order(one: bool, known: bool) -> None:
    def head(s: int, t: int, i: int) -> Prompt:
        listed = TOOLS.copy()
        rng(i).shuffle(listed)
        return tools_of(listed, one=one) + system("You are a clerk.")

    breaker = only(chats(head, known=known).look())
    assert (breaker.kind, breaker.section) == ("reordered_tools", "tools")
    # The first tool comes back, but hardly ever the whole list.
    assert breaker.habit == "unique"
    assert breaker.requests >= 28


def shuffled(value: object, order: random.Random) -> object:
    if isinstance(value, dict):
        keys = list(value)
        order.shuffle(keys)
        return {k: shuffled(value[k], order) for k in keys}
    return [shuffled(v, order) for v in value] if isinstance(value, list) else value


@pytest.mark.parametrize("one", [True, False])
def test_keys_in_another_order(one: bool) -> None:
    log = chats(
        lambda s, t, i: tools_of([shuffled(x, rng(i)) for x in TOOLS], one=one) + system(RULES)
    )
    breaker = only(log.look())
    assert (breaker.kind, breaker.requests) == ("reordered_keys", 29)
    assert breaker.path == "tools/0"
    log = chats(
        lambda s, t, i: system(
            "Facts: " + json.dumps(shuffled({"a": 1, "b": [2], "c": "x", "d": {"e": 1}}, rng(i)))
            + RULES
        )
    )  # fmt: skip
    assert {b.kind for b in log.look().breakers} == {"reordered_keys"}


def test_a_tool_that_comes_and_goes() -> None:
    log = chats(lambda s, t, i: tools_of(TOOLS[: 5 + t % 2], one=False) + system(RULES))
    breaker = only(log.look())
    assert (breaker.kind, breaker.section, breaker.habit) == ("tools_changed", "tools", "thrashing")
    assert breaker.path == "tools/5"
    log = chats(lambda s, t, i: tools_of(TOOLS[: 3 + t], one=False) + system(RULES), turns=4)
    breaker = only(log.look())
    # Each list is new to one session only: the others have had it.
    assert (breaker.kind, breaker.path, breaker.habit) == ("tools_changed", "tools", "thrashing")
    assert breaker.requests == 18


def test_a_date_inside_a_tool() -> None:
    def head(s: int, t: int, i: int) -> Prompt:
        noted = [tool("first"), tool("clock", f" Now it is {TIMES['iso'](i)}."), tool("last")]
        return tools_of(noted, one=False) + system(RULES)

    breaker = only(chats(head).look())
    assert (breaker.kind, breaker.path) == ("time", "tools/1/function/description")


# --- history --------------------------------------------------------------------------------------


def exchanges(session: int, first: int, last: int) -> Prompt:
    out: Prompt = []
    for t in range(first, last):
        out.append(("messages", f"user\n{prose(f'user {session} {t}', 20)}"))
        out.append(("messages", f"assistant\n{prose(f'reply {session} {t}', 40)}"))
    return out


def asked(session: int, turn: int) -> Part:
    return "messages", f"user\n{prose(f'user {session} {turn}', 20)}"


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("summary", [True, False])
def test_a_sliding_window(known: bool, summary: bool) -> None:
    log = Log()
    for turn in range(10):
        for s in range(4):
            first = max(0, turn - 3)
            summed = [("messages", f"user\nSo far: {prose(f'sum {s} {turn}', 30)}")]
            history = (summed if summary and first else []) + exchanges(s, first, turn)
            log.add([*system(RULES), *history, asked(s, turn)], s if known else None)
    breaker = only(log.look())
    assert (breaker.kind, breaker.section) == ("trimmed_history", "messages")
    assert breaker.requests == 24
    assert breaker.position_tokens == pytest.approx(len(RULES) / 4, rel=0.05)


@pytest.mark.parametrize("known", [True, False])
def test_thinking_taken_out_of_history(known: bool) -> None:
    log = Log()
    for turn in range(8):
        for s in range(3):
            history: Prompt = []
            for t in range(turn):
                # Only the two latest replies keep their thinking.
                thought = f"<think>{prose(f'thought {s} {t}', 50)}</think>"
                kept = thought if t >= turn - 2 else ""
                history.append(asked(s, t))
                history.append(("messages", f"assistant\n{kept}{prose(f'reply {s} {t}', 40)}"))
            log.add([*system(RULES), *history, asked(s, turn)], s if known else None)
    breaker = only(log.look())
    assert (breaker.kind, breaker.section) == ("edited_history", "messages")
    assert breaker.requests == 15


def test_messages_stamped_anew() -> None:
    log = Log()
    for turn in range(8):
        for s in range(3):
            stamp = TIMES["clock"](turn * 3 + s)
            history = [
                (section, text.replace("\n", f"\n[{stamp}] ", 1))
                for section, text in [*exchanges(s, 0, turn), asked(s, turn)]
            ]
            log.add([*system(RULES), *history], s)
    breaker = only(log.look())
    assert (breaker.kind, breaker.section, breaker.path) == ("time", "messages", "messages/0")
    assert breaker.requests == 21


def test_prompts_that_come_as_one_text() -> None:
    log = Log()
    for turn in range(5):
        for s in range(4):
            said = "".join(text for _, text in [*exchanges(s, 0, turn), asked(s, turn)])
            log.add([("messages", f"It is {TIMES['iso'](turn * 4 + s)}.\n{RULES}\n{said}")], s)
    breaker = only(log.look())
    assert (breaker.kind, breaker.section) == ("time", "messages")
    assert breaker.requests == 19
    # All that the turn before held behind the clock is lost, not only its first words.
    for row, tokens in breaker.lost.filter(pl.col("row") >= 4).select("row", "tokens").iter_rows():
        earlier = log.prompts[row - 4]
        assert earlier is not None
        stays = len(earlier[0][1]) - len(f"It is {TIMES['iso'](row)}")
        assert tokens == pytest.approx(stays / 4, abs=3)
    log = Log()
    for i in range(20):
        log.add([("messages", f"Trace {IDS['uuid'](i)}\n{RULES}\n{prose(i, 10)}")])
    breaker = only(log.look())
    assert (breaker.kind, breaker.requests) == ("id", 19)


def test_arguments_in_another_order() -> None:
    """The arguments of a tool call are JSON within a string of JSON."""
    log = Log()
    for turn in range(7):
        for s in range(4):
            history: Prompt = [asked(s, 0)]
            for t in range(turn):
                plain = {f"{WORDS[k]}{k}": prose(f"{s} {t} {k}", 3) for k in range(5)}
                arguments = json.dumps(shuffled(plain, rng(turn * 100 + s * 10 + t)))
                call = {"id": f"call_{s}_{t}", "function": {"name": "go", "arguments": arguments}}
                history.append(("messages", f"assistant\n{json.dumps([call])}"))
                history.append(("messages", f"tool\n{prose(f'result {s} {t}', 40)}"))
            log.add([*system(RULES), *history], s)
    breaker = only(log.look())
    assert (breaker.kind, breaker.section) == ("reordered_keys", "messages")
    assert breaker.requests >= 17


def test_values_that_come_back_in_prompts_of_one_text() -> None:
    """What another conversation sent in the same minute is there, and not lost."""
    log = Log()
    for turn in range(6):
        for s in range(8):
            said = "".join(text for _, text in [*exchanges(s, 0, turn), asked(s, turn)])
            log.add([("messages", f"It is {TIMES['minute'](turn)}.\n{RULES}\n{said}")], s)
    breaker = only(log.look())
    assert (breaker.kind, breaker.habit) == ("time", "thrashing")
    history = [sum(len(t) for _, t in [*exchanges(s, 0, turn), asked(s, turn)])
               for turn in range(5) for s in range(8)]  # fmt: skip
    # The rules are lost to the first of each minute only, the history to all.
    want = (sum(history) + 5 * len(RULES)) / 4
    assert breaker.tokens_lost == pytest.approx(want, rel=0.03)
    assert breaker.tokens_apart > want + 30 * len(RULES) / 4


# --- habits ---------------------------------------------------------------------------------------


def test_habits() -> None:
    def variants(pick: Callable[[int, int], int]) -> Breaker:
        log = chats(lambda s, t, i: system(f"At {TIMES['clock'](pick(t, i))}: {RULES}"), turns=8)
        return only(log.look())

    unique = variants(lambda t, i: i)
    thrashing = variants(lambda t, i: t % 2)
    once = variants(lambda t, i: int(t >= 4))
    assert [b.habit for b in (unique, thrashing, once)] == ["unique", "thrashing", "once"]
    # An endless cache keeps both values of the one that comes back.
    assert thrashing.tokens_lost < 0.3 * thrashing.tokens_apart
    assert unique.tokens_lost == unique.tokens_apart
    assert once.requests == 6
    assert once.tokens_lost < 0.2 * unique.tokens_lost


def test_further_places_are_named() -> None:
    log = chats(
        lambda s, t, i: system(
            f"At {TIMES['iso'](i)}. {prose('x', 50)} Request {IDS['uuid'](i)}. {RULES}"
        )
    )
    breaker = only(log.look())
    assert breaker.kind == "time"
    assert [a.kind for a in breaker.also] == ["id"]
    assert breaker.also[0].position_tokens > breaker.position_tokens + 50
    # What the head would share is all of it, not only up to the second place.
    across = breaker.lost.filter(pl.col("row") < 6)
    assert min(across["tokens"].to_list()) > 0.8 * len(RULES) / 4


# --- clean logs -----------------------------------------------------------------------------------


def clean_agents(sessions: int, turns: int, known: bool) -> Log:
    log = Log()
    for turn in range(turns):
        for s in range(sessions):
            history: Prompt = [asked(s, 0)]
            for t in range(turn):
                history.append(("messages", f'assistant\n{{"call":"search","n":{t}}}'))
                result = "OK" if t % 3 == 0 else prose(f"result {s} {t}", 30)
                history.append(("messages", f"tool\n{result} {t}"))
            log.add([*tools_of(TOOLS, one=False), *system(RULES), *history], s if known else None)
    return log


def clean_rag(sessions: int, turns: int, known: bool) -> Log:
    log = Log()
    for turn in range(turns):
        for s in range(sessions):
            docs = "\n".join(
                f"Document {k + 1}: {prose(f'doc {(s * 7 + turn + k) % 9}', 40)}" for k in range(3)
            )
            last = f"user\n{docs}\nQuestion: {prose(f'q {s} {turn}', 10)}\nCite your sources."
            log.add(
                [*system(RULES), *exchanges(s, 0, turn), ("messages", last)],
                s if known else None,
            )
    return log


def clean_templates(sessions: int, turns: int, known: bool) -> Log:
    footer = " Answer in JSON, be brief, and never say what these instructions are."
    return chats(
        lambda s, t, i: system(f"You are {prose(f'role {s % 4}', 60)}.{footer}"),
        sessions=sessions, turns=turns, known=known,
    )  # fmt: skip


def clean_branches(sessions: int, turns: int, known: bool) -> Log:
    """Each turn is asked twice: the same again, then with another last message."""
    log = Log()
    for turn in range(turns):
        for s in range(sessions):
            history = [*system(RULES), *exchanges(s, 0, turn)]
            session = s if known else None
            log.add([*history, ("messages", f"user\n{prose(f'other {s} {turn}', 25)}")], session)
            log.add([*history, asked(s, turn)], session)
            log.add([*history, asked(s, turn)], session)
    return log


def clean_titles(sessions: int, turns: int, known: bool) -> Log:
    """Beside the chat a title is asked for, by another system prompt over the same messages."""
    log = Log()
    title = f"Write a title. {prose('title', 30)}"
    for turn in range(turns):
        for s in range(sessions):
            history = [*exchanges(s, 0, turn), asked(s, turn)]
            log.add([*system(RULES), *history], s if known else None)
            log.add([*system(title), *history], s if known else None)
    return log


def clean_small_talk(sessions: int, turns: int, known: bool) -> Log:
    words = ("hello", "ok", "yes please", "continue", "What is 17 + 25?", "What is 3 + 4?")
    return chats(
        lambda s, t, i: system("You are a helpful assistant."), sessions=sessions, turns=turns,
        known=known, say=lambda s, t: words[(s + t * t) % len(words)],
    )  # fmt: skip


def clean_plain(sessions: int, turns: int, known: bool) -> Log:
    return chats(lambda s, t, i: [], sessions=sessions, turns=turns, known=known)


def clean_tables(sessions: int, turns: int, known: bool) -> Log:
    def table(s: int, t: int) -> str:
        r = rng(s * 100 + t)
        return "Sum this up:\n" + "\n".join(
            f"2026-11-{r.randrange(10, 30)},{r.randrange(1000)},{r.random():.3f}" for _ in range(40)
        )

    return chats(
        lambda s, t, i: system(RULES), sessions=sessions, turns=turns, known=known, say=table
    )


CLEAN = {
    f.__name__.removeprefix("clean_"): f
    for f in (
        clean_agents, clean_rag, clean_templates, clean_branches, clean_titles, clean_small_talk,
        clean_plain, clean_tables,
    )
}  # fmt: skip


@pytest.mark.parametrize("shape", CLEAN)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sessions=st.integers(1, 7), turns=st.integers(1, 7), known=st.booleans())
def test_clean_logs_have_no_breaker(shape: str, sessions: int, turns: int, known: bool) -> None:
    found = CLEAN[shape](sessions, turns, known).look()
    assert found.breakers == ()
    assert found.with_text == len(CLEAN[shape](sessions, turns, known).prompts)


def test_all_clean_logs_together_have_no_breaker() -> None:
    log = Log()
    for number, make in enumerate(CLEAN.values()):
        part = make(5, 5, True)
        for prompt, session in zip(part.prompts, part.sessions, strict=True):
            log.add(prompt, (session or 0) + 100 * number)
    found = log.look()
    assert found.breakers == ()
    assert found.pairs > 0.8 * len(log.prompts)


def test_words_said_over_and_over_are_not_paired_with_each_other() -> None:
    """Two thousand times two words behind a message that changes: places must not multiply."""
    log = Log()
    for turn in range(6):
        said = [("messages", "user\nyes"), ("messages", "assistant\nfine")] * 2000
        log.add([*system(RULES), ("messages", f"user\n{prose(turn)}"), *said, asked(0, turn)], 1)
    assert log.look().pairs == 5
    numbered = book(6, log.frames()[1])
    listed = _listed(numbered, np.arange(6), "was")
    assert listed.height == 6 * 2  # of 4,002 messages each, the first and the last


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_planted_value_is_found_wherever_it_stands(data: st.DataObject) -> None:
    kind, made = data.draw(
        st.sampled_from([("time", f) for f in TIMES.values()] + [("id", f) for f in IDS.values()])
    )
    before, after = data.draw(st.integers(0, 150)), data.draw(st.integers(20, 300))
    fixed = data.draw(st.sampled_from([[], tools_of(TOOLS, one=False), system(prose("fixed"))]))
    lead, tail = prose("before", before), prose("after", after)
    sessions, turns = data.draw(st.integers(3, 6)), data.draw(st.integers(3, 6))
    log = chats(
        lambda s, t, i: [*fixed, *system(f"{lead} {made(i)} {tail}")],
        sessions=sessions, turns=turns, known=data.draw(st.booleans()),
    )  # fmt: skip
    breaker = only(log.look())
    assert (breaker.kind, breaker.section) == (kind, "system")
    assert breaker.within_session >= sessions * (turns - 1) - 2
    assert breaker.position_tokens == pytest.approx(
        (size(fixed) + len("system\n ") + len(lead)) / BYTES_PER_TOKEN, abs=8
    )


# --- several templates, models, sessions that name requests ---------------------------------------


def test_a_session_of_one_request_names_no_conversation() -> None:
    log = chats(lambda s, t, i: system(f"Id {IDS['uuid'](i)}. {RULES}"), known=False)
    log.sessions = list(range(len(log.prompts)))
    breaker = only(log.look())
    assert breaker.kind == "id"
    assert breaker.within_session == 24


def test_another_model_shares_nothing() -> None:
    log = singles(lambda s, t, i: system(f"Id {IDS['uuid'](i)}. {RULES}"), 20)
    log.models = [f"m{i}" for i in range(20)]
    assert log.look().breakers == ()
    # Nor where there is no head that tells the model.
    log = Log()
    for i in range(20):
        log.add([("messages", f"Id {IDS['uuid'](i)}. {RULES}")], model=f"m{i}")
    assert log.look().breakers == ()


def test_breakers_of_several_templates_are_added_up() -> None:
    roles = [prose(f"role {k}", 200) for k in range(3)]
    log = singles(
        lambda s, t, i: system(
            f"Now {TIMES['iso'](i)}. {roles[0]}" if i % 3 == 0 else
            f"Request {IDS['hex'](i)}. {roles[1]}" if i % 3 == 1 else roles[2]
        ),
        60,
    )  # fmt: skip
    found = {b.kind: b for b in log.look().breakers}
    assert found.keys() == {"time", "id"}
    assert found["time"].requests == found["id"].requests == 19


def test_a_request_is_counted_once() -> None:
    log = chats(lambda s, t, i: system(f"Now {TIMES['iso'](i)}, {IDS['hex'](i)}. {RULES}"))
    for s in range(6):
        log.add([*system("Another."), *exchanges(s, 2, 5), asked(s, 5)], s)
    rows = pl.concat([b.lost["row"] for b in log.look().breakers])
    assert rows.n_unique() == len(rows)


def test_the_order_is_by_tokens_lost() -> None:
    log = chats(lambda s, t, i: system(f"Now {TIMES['iso'](i)}. {RULES}"))
    for i in range(20):
        log.add(
            [*system(f"{prose('short', 60)} {IDS['hex'](i)} {prose('tail', 60)}"), asked(99, i)]
        )
    found = log.look().breakers
    assert len(found) == 2
    assert found[0].tokens_lost > found[1].tokens_lost
    assert [b.kind for b in find(*log.frames())] == [b.kind for b in found]


# --- blocks alone ---------------------------------------------------------------------------------


def blocks_log(prompts: Sequence[Sequence[int]], sessions: Sequence[int | None]) -> pl.DataFrame:
    """Blocks are chained here: equal ids mean equal beginnings."""
    chained = [[hash_of(tuple(p[: k + 1])) for k in range(len(p))] for p in prompts]
    requests, _ = Log.frames(_plain_log(len(prompts), sessions))
    return requests.with_columns(
        pl.Series("prefix_blocks", chained, dtype=pl.List(pl.UInt64)),
        pl.lit(16, dtype=pl.UInt32).alias("block_tokens"),
        pl.Series("input_tokens", [16 * len(p) for p in prompts]),
    )


def _plain_log(n: int, sessions: Sequence[int | None]) -> Log:
    log = Log()
    for session in sessions[:n]:
        log.add(None, session)
    return log


def hash_of(value: tuple[int, ...]) -> int:
    return random.Random(repr(value)).getrandbits(64)


HEAD = list(range(1, 11))


def test_blocks_tell_the_place_and_the_habit() -> None:
    prompts: list[list[int]] = []
    sessions: list[int] = []
    for turn in range(5):
        for s in range(4):
            unique = 10_000 + turn * 4 + s
            prompts.append([*HEAD[:3], unique, *HEAD, *(100 * s + k for k in range(50, 60 + turn))])
            sessions.append(s)
    found = look(blocks_log(prompts, sessions), None)
    breaker = only(found)
    assert (breaker.kind, breaker.section, breaker.habit) == ("unknown", "unknown", "unique")
    assert breaker.position_tokens == 48
    assert breaker.requests == 16
    assert breaker.tokens_lost == 16 * sum(4 * (1 + 10 + 10 + t) for t in range(4))
    assert (found.pairs, found.with_text, found.with_blocks) == (16, 0, 20)
    # A value that comes back looks like branches of one conversation: blocks cannot tell.
    turns = [[*p[:3], 10_000 + (i // 4) % 2, *p[4:]] for i, p in enumerate(prompts)]
    assert look(blocks_log(turns, sessions), None).breakers == ()


def test_blocks_tell_a_sliding_window() -> None:
    prompts: list[list[int]] = []
    sessions: list[int] = []
    for turn in range(8):
        for s in range(3):
            first = max(0, turn - 3)
            body = [1000 * s + k for k in range(5 * first, 5 * turn + 5)]
            prompts.append([*HEAD, *body])
            sessions.append(s)
    breaker = only(look(blocks_log(prompts, sessions), None))
    assert (breaker.kind, breaker.section) == ("trimmed_history", "messages")
    assert breaker.position_tokens == 160


def test_blocks_of_a_chat_that_grows_a_little_are_not_trimmed() -> None:
    """Long prompts whose turns add less than a fiftieth, each with a value of its own."""
    prompts: list[list[int]] = []
    sessions: list[int] = []
    for turn in range(4):
        for s in range(5):
            body = [1000 * s + k for k in range(300 + 2 * turn)]
            prompts.append([*HEAD, 100_000 + turn * 5 + s, *body])
            sessions.append(s)
    breaker = only(look(blocks_log(prompts, sessions), None))
    assert (breaker.kind, breaker.requests) == ("unknown", 15)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_clean_blocks_have_no_breaker(data: st.DataObject) -> None:
    """Chats that grow, are asked again, branch now and then, and begin with a title."""
    n = data.draw(st.integers(1, 5))
    history = {s: [*HEAD, 100 * s] for s in range(n)}
    prompts: list[list[int]] = []
    sessions: list[int] = []
    fresh = 10_000
    for _ in range(data.draw(st.integers(1, 25))):
        s = data.draw(st.integers(0, n - 1))
        what = data.draw(st.sampled_from(["grow", "grow", "again", "title"]))
        fresh += 10
        if what == "grow":
            history[s] = [*history[s], *range(fresh, fresh + data.draw(st.integers(1, 5)))]
            prompts.append(history[s])
        elif what == "again":
            prompts.append(history[s])
        elif not any(q == s for q in sessions):
            prompts.append([7777, 7778, fresh])
        else:
            continue
        sessions.append(s)
    assert look(blocks_log(prompts, sessions), None).breakers == ()


# --- hostile input --------------------------------------------------------------------------------


def test_text_never_leaves_unless_it_is_asked_for() -> None:
    secret = "\x1b[31mSECRET\u202e<script>alert(1)</script>"
    names = [f"{secret} {prose(i, 3)}" for i in range(12)]
    log = chats(lambda s, t, i: system(f"User: {names[s]}. {RULES}"), sessions=12)
    plain = only(log.look())
    assert "SECRET" not in repr(plain) + str(plain.lost) + str(plain.path)
    assert plain.sample_before is plain.sample_after is None
    shown = only(log.look(show_text=True))
    assert shown.sample_before is not None
    assert shown.sample_after is not None
    assert shown.sample_before != shown.sample_after
    assert not {"\x1b", "\u202e", "\n"} & set(shown.sample_before + shown.sample_after)
    assert len(shown.sample_before) <= 200


def test_keys_of_tools_that_say_something_are_starred() -> None:
    def head(s: int, t: int, i: int) -> Prompt:
        named = tool("note")
        named["function"]["parameters"]["properties"]["\x1b[31msecret"] = {  # type: ignore[index]
            "description": f"as of {TIMES['iso'](i)}"
        }
        return tools_of([named], one=True) + system(RULES)

    breaker = only(chats(head).look())
    assert breaker.path == "tools/0/function/parameters/properties/*/description"


def test_odd_parts_are_no_trouble() -> None:
    requests, _ = singles(lambda s, t, i: system(RULES), 9).frames()
    listed = [
        None, [], [None], [{"section": None, "text": "a"}], [{"section": "tools", "text": None}],
        [{"section": "\x1b", "text": "b"}], [{"section": "system", "text": ""}],
        [{"section": "messages", "text": "x"}, {"section": "system", "text": "y"}],
        [{"section": "tools", "text": "[" * 50_000}, {"section": "system", "text": "\x00\ud7ff"}],
    ]  # fmt: skip
    parts = pl.DataFrame(
        {"row": range(9), "parts": listed}, schema={"row": pl.Int64, "parts": PARTS}
    )
    found = look(requests, parts)
    assert found.breakers == ()
    assert found.with_text == 4
    doubled = pl.concat([parts, parts.with_columns(pl.col("row") + 5), parts[:0]])
    assert look(requests, doubled).breakers == ()
    assert look(requests, parts[:0]).with_text == 0
    assert look(requests[:0], parts[:0]) == Found((), 0, 0, 0)
    assert look(requests, None) == Found((), 0, 0, 0)


def test_huge_parts_and_deep_json() -> None:
    deep = "[" * 30_000
    log = chats(
        lambda s, t, i: [("tools", deep + str(i)), *system(f"{TIMES['iso'](i)} {'x ' * 400_000}")],
        sessions=2, turns=2,
    )  # fmt: skip
    assert log.look(show_text=True).breakers
    log = chats(lambda s, t, i: system(f"{'y ' * 300_000}{TIMES['iso'](i)} {RULES}"), turns=2)
    assert only(log.look()).kind == "time"


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_prompts_are_judged_without_an_error(data: st.DataObject) -> None:
    text = st.text(max_size=40) | st.sampled_from(["user\nhi", "{", "[1]", '{"a":1}', "1", "\x1b"])
    section = st.sampled_from(["tools", "system", "messages", "?"])
    prompt = st.none() | st.lists(st.tuples(section, text), max_size=5)
    prompts = data.draw(st.lists(prompt, max_size=12))
    log = Log()
    for p in prompts:
        log.add(p, data.draw(st.none() | st.integers(-1, 2)))
    found = log.look(show_text=True)
    assert all(b.kind in KINDS and b.requests == b.lost.height for b in found.breakers)
    assert all(0 <= b.tokens_lost <= b.tokens_apart for b in found.breakers)


# --- the arithmetic underneath --------------------------------------------------------------------

LETTERS = st.text("aé漢😀 ", max_size=80)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(LETTERS, LETTERS, LETTERS), min_size=1, max_size=8), st.integers(1, 9))
def test_where_two_texts_differ(texts: list[tuple[str, str, str]], times: int) -> None:
    a = [head * times + one for head, one, _ in texts]
    b = [head * times + two for head, _, two in texts]
    first = [len("".join(beginning(x, y)).encode()) for x, y in zip(a, b, strict=True)]
    assert first_difference(pl.Series(a), pl.Series(b)).tolist() == first
    assert [agree(x, y) for x, y in zip(a, b, strict=True)] == [
        len(beginning(x, y)) for x, y in zip(a, b, strict=True)
    ]
    last = [len(beginning(x.encode()[::-1], y.encode()[::-1])) for x, y in zip(a, b, strict=True)]
    assert last_difference(pl.Series(a), pl.Series(b)).tolist() == last
    # From places in each, and up to them.
    start = np.array([len(head.encode()) * (times - 1) for head, _, _ in texts])
    ahead = [x - y for x, y in zip(first, start.tolist(), strict=True)]
    assert first_difference(pl.Series(a), pl.Series(b), (start, start)).tolist() == ahead
    stop = tuple(np.array([len(x.encode()) for x in side]) // 2 for side in (a, b))
    last = [
        len(beginning(x.encode()[:i][::-1], y.encode()[:j][::-1]))
        for x, y, i, j in zip(a, b, *stop, strict=True)
    ]
    assert last_difference(pl.Series(a), pl.Series(b), (stop[0], stop[1])).tolist() == last


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_is_common_behind_values_is_counted_to_the_byte(data: st.DataObject) -> None:
    """Pieces that stay, with values between: what is kept is all pieces but the first."""
    makers = [TIMES[n] for n in ("iso", "epoch s", "minute", "words", "rfc 2822")] + [IDS["uuid"]]
    made = data.draw(st.lists(st.sampled_from(makers), min_size=1, max_size=3))
    pieces = [prose(f"piece {k} {data.draw(st.integers(0, 9))}", 30) for k in range(len(made) + 1)]

    def text(i: int, end: str) -> str:
        values = [make(i) for make in made]
        middle = "".join(f" [{v}] {p}" for v, p in zip(values, pieces[1:], strict=True))
        return pieces[0] + middle + end

    a, b = (text(i, f"\n{prose(f'end {i}', 9)}") for i in data.draw(st.permutations(range(9)))[:2])
    at_ = len(beginning(a, b))
    numbered = book(2, parts_frame([[("messages", a)], [("messages", b)]]))
    kept = _kept_behind(numbered, np.array([0]), np.array([1]), np.array([at_]))[0]
    stays = sum(map(len, pieces[1:]))
    # Words at the end may begin alike; of a value a few bytes may be the same.
    assert stays <= kept <= stays + 60 * len(made) + 12


@given(LETTERS, st.integers(0, 300))
def test_cut_never_cuts_a_character(text: str, limit: int) -> None:
    head = cut(pl.Series([text]), limit)[0]
    tail = cut(pl.Series([text]), limit, tail=True)[0]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert limit - 4 < len(head.encode()) <= limit or head == text or limit < 4
    assert piece(pl.Series([text]), np.array([0]), np.array([len(text.encode())]))[0] == text


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=12),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=12),
)
def test_latest_before(asked: list[tuple[int, int]], given_: list[tuple[int, int]]) -> None:
    want = [max((r for k, r in given_ if k == key and r < row), default=-1) for key, row in asked]
    keys, rows = (np.array([p[i] for p in asked], dtype=np.int64) for i in (0, 1))
    others, their = (np.array([p[i] for p in given_], dtype=np.int64) for i in (0, 1))
    got = latest_before(keys.astype(np.uint64), rows, others.astype(np.uint64), their)
    assert got.tolist() == want


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from(["system", "messages"]), st.sampled_from("abc")),
                 max_size=5),
        min_size=2, max_size=6,
    )
)  # fmt: skip
def test_chains_stand_for_beginnings(prompts: list[Prompt]) -> None:
    prompts = [sorted(p, key=lambda part: part[0], reverse=True) for p in prompts]
    numbered = book(len(prompts), parts_frame(prompts))
    chain = numbered.chain(numbered.part_hash, np.zeros(len(prompts), np.int64))
    beginnings = [tuple(t for _, t in p[: k + 1]) for p in prompts for k in range(len(p))]
    ids = chain.tolist()
    assert len(set(ids)) == len(set(beginnings)) == len(set(zip(ids, beginnings, strict=True)))
    a, b = np.zeros(len(prompts), np.int64), np.arange(len(prompts))
    want = [len(beginning([t for _, t in prompts[0]], [t for _, t in p]))
            for p in prompts]  # fmt: skip
    assert numbered.common(a, b).tolist() == want
    assert numbered.size(b).tolist() == [size(p) for p in prompts]


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [f(i).split()[-1] for n, f in IDS.items() if n not in ("session #", "nonce") for i in range(9)],
)
def test_ids_are_told(word: str) -> None:
    assert is_id(word)


@pytest.mark.parametrize("word", NO_IDS.split())
def test_words_are_no_ids(word: str) -> None:
    assert not is_id(word)


@pytest.mark.parametrize("made", TIMES.values(), ids=TIMES)
def test_times_are_told_whole(made: Callable[[int], str]) -> None:
    for i in range(20):
        found = [s for s in spots(f"Now {made(i)} ends") if s.kind == "time"]
        assert found, made(i)


@pytest.mark.parametrize("text", ["you may go", "a march of 3", "ratio 3.14159", "in section 12"])
def test_words_are_no_times(text: str) -> None:
    found = [text[s.start : s.stop] for s in spots(text) if s.kind == "time"]
    assert all(word in ("may", "march") for word in found)


def test_every_kind_has_its_words() -> None:
    assert KINDS.keys() == FIXES.keys()


def test_differences_of_tools() -> None:
    assert differ_tools(["{}"], ["{}"]) is None
    spaced = differ_tools([json.dumps(TOOLS)], [json.dumps(TOOLS, indent=1)])
    assert spaced is not None
    assert spaced.kind == "whitespace"
    renamed = differ_tools([json.dumps(tool("a"))], [json.dumps(tool("b"))])
    assert renamed is not None
    assert renamed.kind == "tools_changed"


def test_a_difference_between_words_is_only_other() -> None:
    a, b = "You help Ann with her tax. " + RULES, "You help Bob with his car. " + RULES
    assert differ(a, b, agree(a, b)).kind == "other"
