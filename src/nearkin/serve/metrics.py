"""Metrics in Prometheus's text format, counted by hand."""

from collections import Counter
from collections.abc import Iterator, Mapping

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


class Histogram:
    """How many took how long."""

    def __init__(self) -> None:
        self.counts, self.total, self.count = [0] * len(BUCKETS), 0.0, 0

    def add(self, seconds: float) -> None:
        """One more."""
        for at, most in enumerate(BUCKETS):
            self.counts[at] += seconds <= most
        self.total, self.count = self.total + seconds, self.count + 1


class Metrics:
    """What the service has done so far. Only the event loop's thread writes."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # route, method, status
        self.seconds = {"request": Histogram(), "encode": Histogram(), "search": Histogram()}
        self.reloads = {"done": 0, "failed": 0}

    def text(self, gauges: Mapping[str, float]) -> str:
        """The page that Prometheus reads."""
        return "\n".join(self._lines(gauges)) + "\n"

    def _lines(self, gauges: Mapping[str, float]) -> Iterator[str]:
        yield "# TYPE nearkin_requests_total counter"
        for (route, method, status), count in sorted(self.requests.items()):
            yield f'nearkin_requests_total{{route="{route}",method="{method}",status="{status}"}} {count}'
        for name, found in self.seconds.items():
            yield f"# TYPE nearkin_{name}_seconds histogram"
            for most, count in zip(BUCKETS, found.counts, strict=True):
                yield f'nearkin_{name}_seconds_bucket{{le="{most:g}"}} {count}'
            yield f'nearkin_{name}_seconds_bucket{{le="+Inf"}} {found.count}'
            yield f"nearkin_{name}_seconds_sum {found.total:.6f}"
            yield f"nearkin_{name}_seconds_count {found.count}"
        yield "# TYPE nearkin_reloads_total counter"
        for outcome, count in self.reloads.items():
            yield f'nearkin_reloads_total{{outcome="{outcome}"}} {count}'
        for name, value in gauges.items():
            yield f"# TYPE nearkin_{name} gauge"
            yield f"nearkin_{name} {value:g}"
