"""Counters of this process for a metrics system."""

from __future__ import annotations

from evenkeel import _core


def metrics() -> str:
    """The counters of all open objects in this process, as OpenMetrics text for Prometheus.

    Arrays, token streams, weights, loaders and budgets, each with its own samples, and their sums
    since the process started. Objects are not kept alive: one that is closed or collected is absent
    from the next text and stays in the sums. Never waits for a disk. Serve it with the content type
    ``application/openmetrics-text; version=1.0.0; charset=utf-8``.

    >>> import evenkeel
    >>> evenkeel.metrics().splitlines()[-1]
    '# EOF'
    """
    return _core.metrics_text()
