"""How much the service puts up with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """In bytes, pixels, seconds and jobs."""

    body_bytes: int = 16 << 20
    pixels: int = 32_000_000  # of a picture once decoded: 96 MB in color
    body_seconds: float = 15.0  # for a request to arrive
    job_seconds: float = 30.0  # for an answer to be found
    queue: int = 64  # jobs under way or waiting; beyond, 429
    threads: int = 2  # jobs under way
    stop_seconds: float = 10.0  # for answers under way when the service is asked to stop
    reload_seconds: float = 0.5  # between two looks at the index on disk
