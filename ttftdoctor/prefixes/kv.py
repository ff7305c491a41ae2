"""What a token takes in a KV cache, by the shape of the model."""

from __future__ import annotations

from dataclasses import dataclass

from ttftdoctor.errors import UsageError


@dataclass(frozen=True)
class KvShape:
    """What a token takes in a KV cache: keys and values of all layers."""

    name: str
    layers: int
    kv_heads: int
    head_size: int
    bytes_per_value: float = 2.0

    @property
    def bytes_per_token(self) -> float:
        """Bytes of keys and values of one token."""
        return 2.0 * self.layers * self.kv_heads * self.head_size * self.bytes_per_value


#: Shapes of some open models, as their published configurations say (bf16).
SHAPES = {
    shape.name: shape
    for shape in (
        KvShape("llama-3.1-8b", 32, 8, 128),
        KvShape("llama-3.1-70b", 80, 8, 128),
        KvShape("llama-3.1-405b", 126, 8, 128),
        KvShape("mistral-7b", 32, 8, 128),
        KvShape("qwen2.5-7b", 28, 4, 128),
        KvShape("qwen2.5-72b", 80, 8, 128),
        KvShape("qwen3-32b", 64, 8, 128),
    )
}


def kv_shape(text: str) -> KvShape:
    """The shape that ``--kv-shape`` means: a name, or LAYERSxKV_HEADSxHEAD_SIZE[xBYTES].

    Raises
    ------
    UsageError
        If it is neither.
    """
    if text.lower() in SHAPES:
        return SHAPES[text.lower()]
    try:
        numbers = [float(part) for part in text.lower().split("x")]
    except ValueError:
        numbers = []
    whole, width = numbers[:3], numbers[3] if len(numbers) == 4 else 2.0
    if (
        len(numbers) not in (3, 4)
        or not all(1 <= value <= 1e6 and value == int(value) for value in whole)
        or not 0 < width <= 16
    ):
        raise UsageError(
            f"--kv-shape wants a name or LAYERSxKV_HEADSxHEAD_SIZE[xBYTES], not {text!r}",
            available=", ".join(SHAPES),
            help="for example 80x8x128 (or 80x8x128x1 for fp8)",
        )
    layers, heads, size = (int(value) for value in whole)
    return KvShape(text, layers, heads, size, width)
