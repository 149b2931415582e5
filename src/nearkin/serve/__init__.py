"""Serve: search over HTTP and the explorer, a page with a map of the index (`pip install 'nearkin[serve]'`).

`serve` runs the service until it is stopped, `make_app` returns the ASGI application for a server of your own, and `Limits` bounds what
clients may send. `show` is the explorer in a notebook. The service listens on this machine only, unless you pass a host and a token. Names
are imported when first used.
"""

from typing import TYPE_CHECKING, Any

from nearkin import _lazy_exports

_HOMES = {
    "nearkin.serve.app": ("make_app",),
    "nearkin.serve.limits": ("Limits",),
    "nearkin.serve.listen": ("serve",),
    "nearkin.serve.notebook": ("show",),
}
__all__ = ["Limits", "make_app", "serve", "show"]

if TYPE_CHECKING:
    from nearkin.serve.app import make_app as make_app
    from nearkin.serve.limits import Limits as Limits
    from nearkin.serve.listen import serve as serve
    from nearkin.serve.notebook import show as show


def __getattr__(name: str) -> Any:
    return _lazy_exports(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
