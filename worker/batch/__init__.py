"""A batch: a file's lines as jobs, and a file of what became of them (docs/batch.md).

``lines`` and ``table`` read the input, ``requests`` says what a line asks for, ``prompts`` and ``jobs`` make a job of it; ``journal`` keeps
what a later run has to know; ``run`` sends and follows, by way of ``window``, ``following`` and ``patience``; ``result_lines`` says
what is written, ``output`` writes it; ``counts`` adds it up.
"""
