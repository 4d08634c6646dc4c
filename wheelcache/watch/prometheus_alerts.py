"""Print alerts for Prometheus: ``python -m wheelcache.watch.prometheus_alerts``.

They are the problems that the dashboard reports, and trends that it shows as charts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Final

from wheelcache.watch.problems import HITS, LOOKUPS, RULES, WORKER_KILLED, Condition

TRENDS: Final = (
    (
        "Absent",
        "critical",
        "5m",
        "absent(wheelcache_workers)",
        "No process reports figures of its caches: the sites are down, or are not scraped",
    ),
    (
        "HitRatioLow",
        "warning",
        "15m",
        f"{Condition(HITS, '<', 0.5, LOOKUPS).query('15m')}\nand {Condition(LOOKUPS, '>', 1).query('15m')}",
        "The hit ratio of the cache {{ $labels.cache }} is {{ $value | humanizePercentage }}",
    ),
    (
        "LoadsSlow",
        "warning",
        "10m",
        "histogram_quantile(0.9, sum by (job, cache, le) (rate(wheelcache_load_seconds_bucket[5m]))) > 2.5",
        "One in ten loads of the cache {{ $labels.cache }} takes more than {{ $value | humanizeDuration }}",
    ),
    (
        "Mixed",
        "info",
        "1h",
        "count by (job, cache) (count by (job, cache, core, version) (wheelcache_info)) > 1",
        "The cache {{ $labels.cache }} runs with {{ $value }} versions or cores of wheelcache",
    ),
)
"""Alerts without a problem on the page: name, severity, duration, expression and summary. The page cannot report that
the site is down, and a low hit ratio is a problem for some caches only."""

HEAD: Final = """\
# Alerts on the metrics of wheelcache. The limits are examples: choose those of your site.
# Made by: python -m wheelcache.watch.prometheus_alerts
groups:
  - name: wheelcache
    rules:
"""


def alerts() -> str:
    """Return the rule file, in YAML."""
    rows = [(each.alert, each.severity, each.duration, each.query(), each.summary) for each in (*RULES, WORKER_KILLED)]
    return HEAD + "\n".join(line for row in (*rows, *TRENDS) for line in _alert(*row)) + "\n"


def _alert(name: str, severity: str, duration: str, expression: str, summary: str) -> Iterator[str]:
    yield f"      - alert: Wheelcache{name}"
    yield "        expr: |"
    yield from (f"          {line}" for line in expression.splitlines())
    yield f"        for: {duration}"
    yield f"        labels: {{severity: {severity}}}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(summary)}"


if __name__ == "__main__":
    sys.stdout.write(alerts())
