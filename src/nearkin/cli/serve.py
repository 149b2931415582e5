"""`nearkin serve`: search over HTTP, with a search page and the explorer."""

import os
import sys
import webbrowser
from argparse import Namespace

from nearkin.cli.terminal import Terminal
from nearkin.index.collection import open_index


def run(arguments: Namespace) -> int:
    """Serve until stopped."""
    try:
        from nearkin.serve.listen import checked_token, serve
        from nearkin.serve.workers import Workers
    except ModuleNotFoundError as error:
        raise ImportError(f"serving needs {error.name}, which is not installed; pip install 'nearkin[serve]'") from error
    token = checked_token(arguments.host, arguments.token or os.environ.get("NEARKIN_TOKEN") or None)
    how = {"device": arguments.device, "verify": not arguments.no_verify}
    collection = open_index(arguments.folder, uri=arguments.uri, **how)
    compare = open_index(arguments.compare, **how) if arguments.compare else None
    console = Terminal(markup=False, highlight=False, soft_wrap=True)

    def ready(address: str) -> None:
        console.print(f"{collection.index.count:,} points at {address} (Ctrl-C stops)")
        if arguments.host in ("0.0.0.0", "::"):
            console.print(f"on {arguments.host}, every address of this machine: other machines use its name instead, and send the token")
        console.print(f"explorer: {address}/explore")
        if not arguments.no_browser:
            webbrowser.open(f"{address}/explore" if token is None else f"{address}/explore?token={token}")

    serve(collection, host=arguments.host, port=arguments.port, token=token, ready=ready, compare=compare, method=arguments.map)
    console.print("stopped")
    if Workers.any_running():  # Python would wait for their threads, as long as they take
        sys.stdout.flush()
        os._exit(0)
    return 0
