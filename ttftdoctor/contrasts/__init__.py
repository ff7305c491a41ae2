"""Why are these rows different from the rest: every column ranked, with effect sizes.

``select`` reads an expression such as ``ttft > p95 and turn >= 3`` and says which rows it means;
``columns`` holds what rows can be selected and compared by; ``rank`` does the statistics;
``records`` is what comes out, and ``words`` and ``terminal`` print it. ``flow`` spells it once.

To add a column: a line in ``columns.numbers_of`` or ``columns.texts_of``; where it contains another
one or follows from it, a line in ``columns.RESTATES``.
"""
