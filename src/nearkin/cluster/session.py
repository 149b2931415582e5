"""A connection to Ray: made within seconds or refused with a reason, and closed afterward."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PATIENCE = 5.0  # seconds to wait for a response; Ray itself would wait for two minutes and then exit the process
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # HTTP/2, as a Ray head expects
SETTINGS = 4  # the type of frame that it responds with
FIX = "start one with `ray start --head` and pass the address that it prints, or omit --address to use this machine only"


@contextmanager
def session(address: str | None = None) -> Iterator[Any]:
    """Ray, connected to the cluster at `address` (host:port, or auto) or started on this machine; an existing connection is reused.

    This process must run on a machine of the cluster, since Ray connects through the node there.
    """
    try:
        ray = import_module("ray")
        import_module("ray.data")
    except ImportError:
        raise ImportError("--engine ray needs Ray; run pip install 'nearkin[ray]', or use --engine local") from None
    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConnectionError(f"--address {address}: no Ray cluster could be joined ({error}); {FIX}") from error
    try:
        silence(ray)
        yield ray
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Raise an error within seconds if there is no Ray head at an address; auto is left to Ray, which knows at once."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"--address {address!r} must be host:port, such as 10.0.0.1:6379, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(GREETING)
            answer = connection.recv(4)
    except OSError as error:
        raise ConnectionError(f"--address {address}: no server responds there ({error}); {FIX}") from error
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise ConnectionError(f"--address {address}: a server listens there, but it is not a Ray cluster; {FIX}")


def silence(ray: Any) -> None:
    """Turn off Ray Data's progress bars and messages; the caller reports progress."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.ERROR)


def workers(ray: Any, device: str | None = None) -> tuple[int, dict[str, Any]]:
    """How many workers the cluster can run, and what each needs: a GPU if there are any and `device` is not cpu, otherwise a core."""
    resources = ray.cluster_resources()
    if resources.get("GPU", 0) >= 1 and device != "cpu":
        return int(resources["GPU"]), {"num_gpus": 1, "num_cpus": 0}
    return max(int(resources.get("CPU", 1)), 1), {"num_cpus": 1}
