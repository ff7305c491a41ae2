"""Comparing two logs: did a change help at equal traffic, and was it predicted?

``records`` are what is said, ``portrait`` makes the small record of one side, ``judge`` sets two of
them beside each other, ``hindcast`` scores predictions, ``report`` writes it down and ``flow`` is
the whole of it. The sums are in ``measure.mix`` and ``measure.weigh``.
"""
