"""The process that decodes uploaded images: `python -m nearkin.serve.decode_worker SECONDS BYTES`, started by `nearkin.serve.decoders`.

It reads requests from its standard input, a socket, and answers on it. It holds no secret, writes no file, and has limits for time and
memory, so that an image that is made to break or to slow down a decoder costs this process only.
"""

import os
import socket
import struct
import sys
import time
from typing import get_args

from PIL import Image

from nearkin.data.pixels import Framing, Interpolation, decode_upload, failure

INTERPOLATIONS: tuple[Interpolation, ...] = get_args(Interpolation)
REQUEST = struct.Struct("!IIdIQQQ")  # channels, size, crop, interpolation, most pixels, most bytes, length of the file that follows
REPLY = struct.Struct("!B3IQ")  # a status, the shape, and the length of the pixels or of the reason that follow
DECODED, REFUSED, OUT_OF_MEMORY = range(3)


def answer(content: bytes, channels: int, framing: Framing, most_pixels: int, most_bytes: int) -> tuple[bytes, bytes]:
    """The head of the reply and what follows it."""
    try:
        pixels = decode_upload(content, channels, framing, most_pixels, most_bytes)
    except MemoryError:
        status, reason = OUT_OF_MEMORY, f"decoding it takes more than {most_bytes:,} bytes"
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more on broken bytes
        status, reason = REFUSED, failure(error)
    else:
        return REPLY.pack(DECODED, *pixels.shape, pixels.nbytes), pixels.tobytes()
    text = reason.encode()
    return REPLY.pack(status, 0, 0, 0, len(text)), text


def main(seconds: float, most_bytes: int) -> None:
    """Answer until the socket is closed."""
    Image.init()  # before memory is limited: it loads the decoders
    _limit_memory(most_bytes)
    with socket.socket(fileno=0) as channel, channel.makefile("rb") as requests:
        while head := requests.read(REQUEST.size):
            channels, size, crop, interpolation, most_pixels, largest, length = REQUEST.unpack(head)
            content = requests.read(length)
            _limit_seconds(seconds)
            reply, rest = answer(content, channels, Framing(size, crop, INTERPOLATIONS[interpolation]), most_pixels, largest)
            channel.sendall(reply + rest)


def _limit_memory(most_bytes: int) -> None:
    """Memory beyond what the process has now, and no files: where the system can limit them."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_AS, (held + most_bytes, held + most_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_seconds(seconds: float) -> None:
    """CPU time for the next image: it ends this process even if the service was killed and nobody waits for it."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + seconds) + 2, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
