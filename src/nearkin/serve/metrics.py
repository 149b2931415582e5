"""The metrics of one service, for Prometheus."""

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
MEDIA_TYPE = "text/plain; version=0.0.4"


class Metrics:
    """Counters and histograms in a registry of their own; `gauges` are functions that return the current value."""

    def __init__(self, gauges: Mapping[str, Callable[[], float]]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("nearkin_requests", "HTTP requests", ["route", "method", "status"], registry=self.registry)
        self.seconds = {
            name: Histogram(f"nearkin_{name}_seconds", f"Seconds per {name}", buckets=BUCKETS, registry=self.registry)
            for name in ("request", "encode", "search")
        }
        self.reloads = Counter("nearkin_reloads", "Attempts to load a new generation of the index", ["outcome"], registry=self.registry)
        for outcome in ("done", "failed"):
            self.reloads.labels(outcome)  # so that it is listed from the start
        for name, value in gauges.items():
            Gauge(f"nearkin_{name}", name.replace("_", " ").capitalize(), registry=self.registry).set_function(value)

    def text(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self.registry)
