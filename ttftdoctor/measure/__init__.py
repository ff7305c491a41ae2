"""Sums over rows: the only part that sees every request.

``rows`` brings the table into order (sessions, turns, repeated tokens), ``links`` finds sessions
where the log names none, ``load`` counts who was ahead of whom, ``lines`` fits what work costs,
``ledger`` splits each TTFT into accounts, ``signs`` looks for the marks of each cause, ``splits``
groups, and ``replay`` serves the same arrivals again under a treatment. Nothing here knows files
or words; everything after it is small.
"""
