"""`python -m nearkin` is `nearkin`."""

import sys

from nearkin.cli import main

if __name__ == "__main__":
    sys.exit(main())
