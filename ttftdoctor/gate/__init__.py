"""The gate: is the server slower than its baseline, whatever the traffic was?

``sketch`` sums one run by cell (its head set aside by ``warmup``), ``baseline`` holds runs and is
what a file keeps (``packed``). ``rules`` are what is asked, read by ``policy``; ``metrics`` are
what can be asked for. ``judge`` holds two baselines against each other: at the mix of one
(``even``), with errors and their correction (``estimate``), and by cost lines (``lines``).
``moved`` says what changed inside, from what was ``seen`` on each side. ``records`` come out,
``reports`` write them, ``flow`` spells it once. ``history`` sets many baselines in order, finds
where they changed (``trend``), and keeps them (``shelf``).
"""
