"""A session with Ray: connected within seconds or refused with a reason, and left as it was found."""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

PATIENCE = 5.0  # seconds to wait for an answer; Ray itself would wait for two minutes and then end the process
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # HTTP/2 with empty settings: how a Ray head is met
SETTINGS = 4  # the kind of frame it answers with
MEND = "start one with `ray start --head` and give the address that it prints, or leave --address out to work on this machine alone"


@contextmanager
def session(address: str | None = None) -> Iterator[Any]:
    """Ray, connected to the cluster at `address` (host:port, or auto) or started on this machine; one that runs already is taken.

    A driver stands on a machine of the cluster: Ray connects through the node that runs there.
    """
    try:
        ray = import_module("ray")
        import_module("ray.data")
    except ImportError:
        raise ImportError("--engine ray needs Ray; pip install 'nearkin[ray]', or take --engine local") from None
    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        check_address(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    try:
        if address is None:
            ray.init(address="local", include_dashboard=False, **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConnectionError(f"--address {address}: no Ray cluster could be joined ({error}); {MEND}") from error
    try:
        hush(ray)
        yield ray
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Somebody listens there and speaks as a Ray head does, or an error within seconds; auto is left to Ray, which knows at once."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"--address {address!r} must read host:port, such as 10.0.0.1:6379, or auto")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE) as line:
            line.settimeout(PATIENCE)
            line.sendall(GREETING)
            answer = line.recv(4)
    except OSError as error:
        raise ConnectionError(f"--address {address}: nobody answers there ({error}); {MEND}") from error
    if len(answer) < 4 or answer[3] != SETTINGS:
        raise ConnectionError(f"--address {address}: something listens there, but it is no Ray cluster; {MEND}")


def hush(ray: Any) -> None:
    """Ray Data's bars and notices off: progress is told by whoever called."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray.data", "ray"):
        logging.getLogger(name).setLevel(logging.ERROR)


def workers(ray: Any, device: str | None = None) -> tuple[int, dict[str, Any]]:
    """How many workers the cluster has room for, and what each asks for: a GPU if there are any and `device` is not cpu, else a core."""
    there = ray.cluster_resources()
    if there.get("GPU", 0) >= 1 and device != "cpu":
        return int(there["GPU"]), {"num_gpus": 1, "num_cpus": 0}
    return max(int(there.get("CPU", 1)), 1), {"num_cpus": 1}
