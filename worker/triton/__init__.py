"""Triton behind one adapter: what the rest of the worker knows of it is a generation, a JobError, or a report.

``adapter`` runs jobs; ``asking`` is a model as jobs ask it, by ``binary`` tensors or by ``generating``'s JSON, with what
``job_inputs`` makes of a job; ``tensors`` and what begins like it do the same for tensor jobs. ``server`` asks Triton about
itself; ``comparing`` holds a configuration against a model, with ``remedies`` for what does not fit and ``habits`` for what
may go wrong though it does; ``suggesting`` makes one for a model that has none. ``outputs`` and ``failures`` decide what an
answer means; ``codec`` alone knows tritonclient, ``http`` geventhttpclient.
"""
