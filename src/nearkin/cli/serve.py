"""`nearkin serve`: search over HTTP, and a page to look at."""

import os
import webbrowser
from argparse import Namespace

from rich.console import Console

from nearkin.collection import open_index


def run(arguments: Namespace) -> int:
    """Serve until stopped."""
    try:
        from nearkin.serve.listen import checked_token, serve
    except ModuleNotFoundError as error:
        raise ImportError(f"serving needs {error.name}, which is not installed; pip install 'nearkin[serve]'") from error
    token = checked_token(arguments.host, arguments.token or os.environ.get("NEARKIN_TOKEN") or None)
    collection = open_index(arguments.folder, device=arguments.device)
    console = Console(highlight=False, soft_wrap=True)

    def ready(address: str) -> None:
        console.print(f"{collection.index.count:,} points at {address} (Ctrl-C stops)")
        if not arguments.no_browser:
            webbrowser.open(address if token is None else f"{address}/?token={token}")

    serve(collection, host=arguments.host, port=arguments.port, token=token, ready=ready)
    console.print("stopped")
    return 0
