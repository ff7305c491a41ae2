"""A service whose causes are known: what a diagnosis can be held against.

A scenario is served by a seeded discrete-event model of a continuous-batching server; the log is
written at one of several levels of detail, with the truth beside it: what was planted, where each
request's time went, and what each remedy gives when the same workload is served again with it.

>>> from ttftdoctor import simulator
>>> run = simulator.serve(simulator.load("repeated_prefix_no_reuse"), seed=3)
>>> simulator.write_log(run, "log.jsonl", "client")  # doctest: +SKIP
>>> run.truth()["causes"]["primary"]
'repeated_prefix_no_reuse'

``scenario`` reads TOML, ``workload`` draws sessions and builds prompts, ``cache`` is one replica's
prefix cache, ``server`` the event loop, ``treat`` the remedies, ``faults`` what is measured wrong,
``truth`` the accounts, ``log`` the writing. To add a scenario, put ``scenarios/NAME.toml`` there;
``scenario.py`` says what the keys mean.
"""

from __future__ import annotations

from ttftdoctor.simulator.log import DETAILS, log_bytes, write_log
from ttftdoctor.simulator.scenario import Causes, Scenario, load, names, parse
from ttftdoctor.simulator.treat import COMPACT_TO, TREATMENTS
from ttftdoctor.simulator.truth import ACCOUNTS, Run, remedies_truth, serve

#: Ids of the remedies that can be served.
REMEDIES = tuple(TREATMENTS)

__all__ = [
    "ACCOUNTS",
    "COMPACT_TO",
    "DETAILS",
    "REMEDIES",
    "Causes",
    "Run",
    "Scenario",
    "load",
    "log_bytes",
    "names",
    "parse",
    "remedies_truth",
    "serve",
    "write_log",
]
