"""Triton behind one adapter: what the rest of the worker knows of it is a generation, a JobError, or a report.

``adapter`` runs jobs; ``server`` asks Triton about itself; ``model_contract`` holds a model's configuration against ours;
``outputs`` and ``failures`` decide what an answer means; ``codec`` alone knows tritonclient, ``http`` geventhttpclient.
"""
