"""What a worker shows to Prometheus, at `metrics_address`. docs/metrics.md lists the families.

``families`` is the one table of them; ``counters`` counts jobs as they end, ``standing`` and ``backlog`` say how worker, models, queues
and pool stand, ``triton`` passes Triton's own metrics through, ``server`` answers scrapes and probes, ``service`` wires them.

Every process counts for itself, in plain numbers of its own and not in prometheus_client's, and serves nothing but these: workers
on one machine share no file and no registry, so there is nothing that a process which dies could leave behind.
"""
