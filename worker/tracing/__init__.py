"""Spans of jobs for OpenTelemetry, where the extra ``otel`` is installed and an exporter is configured. docs/tracing.md is the page.

``runs`` notes times on a job's way and makes a story of them when its outcome is committed; ``exporting`` alone knows OpenTelemetry, and is
imported only where spans are sent. No span is made before: what a job costs until then is a few numbers that are kept.
"""
