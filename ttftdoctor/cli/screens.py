"""What commands show of their work, where the work itself has no report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def print_baseline(console: Console, kept: Any, size: int) -> None:
    """A few lines about what a baseline holds."""
    from rich.text import Text

    from ttftdoctor.report import clean
    from ttftdoctor.units import count

    facts = [sketch.facts for sketch in kept.sketches]
    one = len(facts) == 1
    lines = [
        f"baseline {clean(kept.label, 80)}: {count(sum(f.requests for f in facts))} requests, "
        f"{len(facts)} run{'' if one else 's'}, {size / 1000:,.0f} kB"
    ]
    aside = sum(f.warm_up for f in facts)
    if aside:
        lines.append(f"set aside as warm-up: {count(aside)} requests")
    for number, f in enumerate(facts[:10], 1):
        name = "" if one else f"run {number}: "
        lines.append(f"  {name}diagnosed as {clean(f.cause, 60)}: {clean(f.headline, 300)}")
    lines += [f"to keep it small: {clean(text, 200)}" for text in kept.lost]
    if len(facts) < 3:
        lines.append("with three runs or more (--runs) the spread from run to run is known too")
    for line in lines:
        console.print(Text(line))


def print_formats(console: Console, readers: Iterable[Any]) -> None:
    """The formats that can be read, as a table."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("format", "what it is", "what it lacks"):
        table.add_column(title, overflow="fold")
    for reader in readers:
        table.add_row(reader.name, reader.title, reader.lacks)
    console.print(table)


def print_scenarios(console: Console) -> None:
    """The shipped scenarios, as a table."""
    from rich.table import Table

    from ttftdoctor import simulator

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("scenario", "planted", "what it is"):
        table.add_column(title, overflow="fold", no_wrap=title == "scenario")
    for name in simulator.names():
        found = simulator.load(name)
        table.add_row(name, found.causes.primary, found.title)
    console.print(table)


def print_run(console: Console, truth: dict[str, Any]) -> None:
    """A few lines about what was served; with remedies, what each of them gains."""
    from rich.table import Table
    from rich.text import Text

    from ttftdoctor.report import clean
    from ttftdoctor.units import seconds, share

    causes, today = truth["causes"], truth["today"]
    planted = ", ".join([causes["primary"], *causes["contributing"]])
    scope = ", ".join(f"{k} {v}" for k, v in (truth["scope"] or {}).items())
    lines = [
        truth["title"],
        f"{truth['requests']:,} requests of {truth['sessions']:,} sessions, seed {truth['seed']}",
        f"planted: {planted}" + (f", on {scope}" if scope else ""),
    ]
    if truth["treatment"]:
        lines.append(f"treated with: {truth['treatment']}")
    if today["mean"] is not None:
        lines.append(f"TTFT mean {seconds(today['mean'])}, p50 {seconds(today['p50'])}, "
                     f"p95 {seconds(today['p95'])}")  # fmt: skip
    for line in lines:
        console.print(Text(clean(line)))
    if "remedies" not in truth:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("remedy", "mean", "p50", "p95", "gain"):
        table.add_column(title, justify="left" if title == "remedy" else "right")
    for name, level in truth["remedies"].items():
        if level["gain_share"] is not None:
            table.add_row(
                name, *(seconds(level[f"ttft_{k}_s"]) for k in ("mean", "p50", "p95")),
                share(level["gain_share"]),
            )  # fmt: skip
    console.print(table)


def print_roofline(console: Console, r: Any, input_: float, output: float) -> None:
    """What the hardware allows, in words."""
    from ttftdoctor.units import seconds, share

    low, high = r.prefill_usual_s
    per_low, per_high = r.ms_per_1k_tokens_usual
    lines = [
        f"Prefill of {input_:,.0f} tokens: {r.prefill_flop:.2g} FLOP",
        f"  at full arithmetic  {seconds(r.prefill_ideal_s)}",
        f"  at 40-50 % of it    {seconds(low)} to {seconds(high)}"
        f"  ({per_low:.3g} to {per_high:.3g} ms per 1,000 tokens)",
        f"  memory bandwidth in use: {share(r.prefill_bandwidth_use)}  -> bound by arithmetic"
        if r.prefill_bandwidth_use < 1
        else "  memory bandwidth in use: 100 %  -> bound by bandwidth (a short prompt)",
        f"Decode, one token a step at {input_ + output / 2:,.0f} tokens of context: "
        f"{r.decode_flop_per_token / 1e9:.3g} GFLOP and {r.decode_bytes_per_token / 1e9:.3g} GB "
        f"({r.decode_kv_bytes / 1e9:.2g} GB of it KV)",
        f"  {r.decode_ideal_s * 1e3:.3g} ms a token, {seconds(r.decode_total_s)} for "
        f"{output:,.0f} tokens",
        f"  FLOP/s in use: {share(r.decode_flops_use)}  -> bound by bandwidth",
        f"Both take equally long at {r.balance_tokens_per_step:,.0f} tokens a step.",
    ]
    for line in lines:
        console.print(line)
