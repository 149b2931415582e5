"""Rows dealt out to threads: each takes whole pieces and runs its products alone, so no result depends on timing."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch

_one_at_a_time = threading.RLock()  # torch's number of threads is a setting of the whole process


def run_in_threads(work: Callable[[slice], None], n: int, most: int) -> None:
    """work(rows) for consecutive pieces of n rows, at most `most` long, on as many threads as torch has."""
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
            # OpenMP keeps the number of threads by thread: a new one has to be told
            with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
                list(pool.map(work, pieces))
        finally:
            torch.set_num_threads(threads)
