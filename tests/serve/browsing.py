"""What tests in a real browser share: the service in a thread, a page that remembers what its console said, and waiting."""

import threading
import time
from typing import Any

from nearkin.index.collection import Collection
from nearkin.serve.listen import serve


def served(collection: Collection, **more: Any) -> str:
    """The address of the service in a thread of this process, which ends with it."""
    found, ready = list[str](), threading.Event()

    def told(address: str) -> None:
        found.append(address)
        ready.set()

    threading.Thread(target=serve, args=(collection,), kwargs={"port": 0, "ready": told, **more}, daemon=True).start()
    assert ready.wait(60)
    return found[0]


def until(page: Any, test: str) -> None:
    """Wait for a condition; playwright's own way of waiting is forbidden by the pages' policy."""
    for _ in range(400):
        if page.evaluate(test):
            return
        time.sleep(0.05)
    raise AssertionError(test)
