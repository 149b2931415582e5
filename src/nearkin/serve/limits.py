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
        Size of an uploaded image once it is decoded.
    body_seconds : float, default 15
        Time for the headers of a request to arrive, and again for its body.
    job_seconds : float, default 30
        Time for a search.
    queue : int, default 64
        Searches that run or wait, and as many images to decode; further ones are refused with status 429.
    threads : int, default 2
        Searches that run at once, and images that are decoded at once.
    stop_seconds : float, default 10
        Time for running searches to finish when the service stops.
    reload_seconds : float, default 0.5
        Time between two checks for changes of the index.
    decode_seconds : float, default 5
        Time to decode an image; the process that decodes it is killed then.
    decode_bytes : int, default 512 MiB
        Memory that a process may take to decode an image.
    connections : int, default 512
        Connections that are open at once.
    connections_per_address : int, default 128
        The same from one address (from one /64 network for IPv6). Raise it if all clients come through a proxy.
    idle_seconds : float, default 30
        Time that a connection stays open between two requests.
    send_seconds : float, default 60
        Time for a client to take a response.
    wrong_token_seconds : float, default 1
        Time that the response to a wrong token is delayed.

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
    decode_seconds: float = 5.0
    decode_bytes: int = 512 << 20
    connections: int = 512
    connections_per_address: int = 128
    idle_seconds: float = 30.0
    send_seconds: float = 60.0
    wrong_token_seconds: float = 1.0
