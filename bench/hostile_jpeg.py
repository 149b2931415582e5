"""A small JPEG that takes minutes to decode: progressive, with thousands of scans over all of its pixels."""

import io
from functools import cache

from PIL import Image


@cache
def many_scans(scans: int, side: int = 5568) -> bytes:
    """A gray progressive JPEG of side x side pixels whose last scan is repeated."""
    out = io.BytesIO()
    Image.new("L", (side, side), 128).save(out, "JPEG", progressive=True)
    plain = out.getvalue()
    last = plain.rindex(b"\xff\xda")
    table = plain.rindex(b"\xff\xc4", 0, last)
    return plain[:-2] + plain[table:-2] * (scans - plain.count(b"\xff\xda")) + b"\xff\xd9"
