"""The limits of the service."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes and times above which the service refuses requests.

    Parameters
    ----------
    body_bytes : int, default 16 MiB
        Size of a request.
    pixels : int, default 32,000,000
        Size of an uploaded image once it is decoded (96 MB in color).
    body_seconds : float, default 15
        Time for a request to arrive.
    job_seconds : float, default 30
        Time for a search.
    queue : int, default 64
        Searches that run or wait; further ones are refused with status 429.
    threads : int, default 2
        Searches that run at once.
    stop_seconds : float, default 10
        Time for running searches to finish when the service stops.
    reload_seconds : float, default 0.5
        Time between two checks for changes of the index.

    Examples
    --------
    >>> Limits(queue=8).job_seconds
    30.0
    """

    body_bytes: int = 16 << 20
    pixels: int = 32_000_000
    body_seconds: float = 15.0
    job_seconds: float = 30.0
    queue: int = 64
    threads: int = 2
    stop_seconds: float = 10.0
    reload_seconds: float = 0.5
