"""Serve: search over HTTP, on this machine unless told otherwise, with a page to look at (`pip install 'nearkin[serve]'`)."""
