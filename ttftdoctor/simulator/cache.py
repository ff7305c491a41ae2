"""A block prefix cache: what a replica still knows of prompts that it has computed.

Prompts are chains of parts (system prompt, document, user's words, answer, ...). A part's number
stands for the part *and* all that is before it, so two prompts share a number exactly as far as
their heads are the same: the number plays the role of a chained block hash, for many blocks at
once. Each part in the cache holds some of its tokens, counted from its start. What was used least
recently goes first, and of one prompt its tail before its head, as in engines that free blocks in
reverse (Kwon et al. 2023, "Efficient Memory Management for Large Language Model Serving with
PagedAttention").
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Blocks of one replica, least recently used first.

    Parameters
    ----------
    block_tokens
        Tokens of a block; only whole blocks, counted from the start of a prompt, are kept or hit.
    capacity_tokens
        Room in tokens; 0 for no bound.
    ttl
        How long after its last use a part is kept, in the clock's unit; 0 for ever.
    """

    def __init__(self, block_tokens: int, capacity_tokens: int = 0, ttl: int = 0) -> None:
        self.block_tokens = block_tokens
        self.capacity_tokens = capacity_tokens
        self.ttl = ttl
        self.tokens = 0
        self._parts: OrderedDict[int, tuple[int, int]] = OrderedDict()  # part: tokens, last use

    def clear(self) -> None:
        """Forget all."""
        self._parts.clear()
        self.tokens = 0

    def match(self, path: Sequence[int], lengths: Sequence[int], now: int) -> int:
        """Tokens at the head of a prompt that are here, in whole blocks; nothing is touched."""
        return self._match(path, lengths, now)[0] // self.block_tokens * self.block_tokens

    def use(self, path: Sequence[int], lengths: Sequence[int], now: int) -> int:
        """As :meth:`match`, and what was found counts as used now."""
        tokens, parts = self._match(path, lengths, now)
        for part in reversed(path[:parts]):
            self._parts[part] = (self._parts[part][0], now)
            self._parts.move_to_end(part)
        return tokens // self.block_tokens * self.block_tokens

    def add(self, path: Sequence[int], lengths: Sequence[int], now: int) -> None:
        """Keep the whole blocks of a prompt; make room by what was used least recently."""
        self._forget(now)
        left = sum(lengths[part] for part in path) // self.block_tokens * self.block_tokens
        kept = []
        for part in path:
            if left <= 0:
                break
            want = min(lengths[part], left)
            left -= want
            had = self._parts.get(part, (0, 0))[0]
            if want > had:
                self.tokens += want - had
            self._parts[part] = (max(want, had), now)
            kept.append(part)
        for part in reversed(kept):
            self._parts.move_to_end(part)
        self._shrink()

    def _match(self, path: Sequence[int], lengths: Sequence[int], now: int) -> tuple[int, int]:
        """Tokens found at the head, and in how many parts."""
        oldest = now - self.ttl if self.ttl else None
        tokens = 0
        parts = 0
        for part in path:
            entry = self._parts.get(part)
            if entry is None or (oldest is not None and entry[1] < oldest):
                break
            tokens += entry[0]
            parts += 1
            if entry[0] < lengths[part]:
                break
        return tokens, parts

    def _forget(self, now: int) -> None:
        """Drop what has expired: by the order of use, all of it lies at the front."""
        if not self.ttl:
            return
        parts = self._parts
        while parts:
            first = next(iter(parts))
            if parts[first][1] >= now - self.ttl:
                return
            self.tokens -= parts.pop(first)[0]

    def _shrink(self) -> None:
        parts = self._parts
        while self.capacity_tokens and self.tokens > self.capacity_tokens and parts:
            first = next(iter(parts))
            held, used = parts[first]
            over = -(-(self.tokens - self.capacity_tokens) // self.block_tokens)
            over *= self.block_tokens
            if over < held:
                parts[first] = (held - over, used)
                self.tokens -= over
            else:
                del parts[first]
                self.tokens -= held
