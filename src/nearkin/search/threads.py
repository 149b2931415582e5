"""Run pieces of rows on threads; each piece runs its products on one thread, so no result depends on timing."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_one_at_a_time = threading.RLock()  # torch's number of threads is a setting of the whole process


def run_in_threads(work: Callable[[slice], None], n: int, most: int) -> None:
    """Call work(rows) for consecutive pieces of n rows, each at most `most` long, on as many threads as torch uses."""
    with _one_at_a_time:
        threads = torch.get_num_threads()
        step = min(most, -(-n // threads))
        pieces = [slice(start, min(start + step, n)) for start in range(0, n, step)]
        if threads == 1:
            for piece in pieces:
                work(piece)
            return
        torch.set_num_threads(1)
        try:
            # OpenMP sets the number of threads per thread: each new thread needs its own setting
            with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                list(pool.map(work, pieces))
        finally:
            torch.set_num_threads(threads)
