"""Recordings as pictures: a .wav file becomes its mel spectrogram, a gray image that is read, trained on and shown like any other.

Windows of 25 ms every 10 ms; 128 bands from 50 to 8,000 Hz, evenly spaced by pitch, whatever the sampling rate is; the whole recording is
averaged into 128 columns; 80 dB below the loudest point is black. Low notes are at the bottom.
"""

import io
import wave

import numpy as np

SUFFIX = ".wav"
SIDE = 128  # bands, and columns
LOWEST, HIGHEST = 50.0, 8000.0  # Hz
WINDOW, HOP = 0.025, 0.010  # seconds
RANGE = 80.0  # dB between white and black
LONGEST = 600  # seconds that are read of a recording
BLOCK = 1024  # windows transformed at a time


def is_sound(content: bytes) -> bool:
    """Whether the bytes are those of a .wav file."""
    return content[:4] == b"RIFF" and content[8:12] == b"WAVE"


def spectrogram(content: bytes) -> np.ndarray:
    """(SIDE, SIDE) uint8: the mel spectrogram of the bytes of a .wav file."""
    samples, rate = _samples(content)
    window, hop = max(round(WINDOW * rate), 2), max(round(HOP * rate), 1)
    samples = np.pad(samples, (0, max(window - len(samples), 0)))
    starts = np.arange(0, len(samples) - window + 1, hop)
    bands, shape = _bands(rate, window), np.hanning(window).astype(np.float32)
    found = np.concatenate([_power(samples, some, shape) @ bands for some in np.array_split(starts, -(-len(starts) // BLOCK))])  # (t, SIDE)
    decibels = 10 * np.log10(_columns(found) + 1e-10)
    levels = (decibels - decibels.max()).clip(-RANGE, 0) / RANGE + 1
    return np.ascontiguousarray(np.round(255 * levels).astype(np.uint8).T[::-1])


def _samples(content: bytes) -> tuple[np.ndarray, int]:
    """The samples in -1..1, of several channels their mean, and how many there are in a second."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
            raw = np.frombuffer(file.readframes(min(file.getnframes(), LONGEST * rate)), dtype=np.uint8)
    except (wave.Error, EOFError) as error:
        raise ValueError(f"the recording cannot be read ({error or 'it ends too early'}); save it as PCM, 8 to 32 bits") from None
    raw = raw[: len(raw) // (width * channels) * width * channels].reshape(-1, width)
    if not len(raw):
        raise ValueError("the recording holds no sound")
    if width == 1:  # unsigned
        numbers = raw[:, 0].astype(np.float32) / 128 - 1
    else:
        padded = np.zeros((len(raw), 4), dtype=np.uint8)
        padded[:, 4 - width :] = raw  # little-endian: the highest byte is the last
        numbers = padded.view("<i4")[:, 0].astype(np.float32) / 2**31
    return numbers.reshape(-1, channels).mean(1), rate


def _power(samples: np.ndarray, starts: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """(t, bins) the power spectra of the windows that begin at `starts`."""
    windows = samples[starts[:, None] + np.arange(len(shape))]
    return np.abs(np.fft.rfft(windows * shape)).astype(np.float32) ** 2


def _bands(rate: int, window: int) -> np.ndarray:
    """(bins, SIDE) triangles, evenly spaced in mel."""
    edges = 700 * (10 ** (np.linspace(_mel(LOWEST), _mel(HIGHEST), SIDE + 2) / 2595) - 1)  # (SIDE + 2,) Hz
    bins = np.arange(window // 2 + 1)[:, None] * (rate / window)  # Hz
    width = np.maximum(np.diff(edges), rate / window)  # no band falls between two bins
    low, center, high = edges[1:-1] - width[:-1], edges[1:-1], edges[1:-1] + width[1:]
    found = np.minimum((bins - low) / (center - low), (high - bins) / (high - center)).clip(0)
    return np.asarray(found / np.maximum(found.sum(0), 1e-9), dtype=np.float32)


def _mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def _columns(found: np.ndarray) -> np.ndarray:
    """(t, bands) averaged into SIDE columns, or repeated where there are fewer."""
    if len(found) < SIDE:
        return found[np.arange(SIDE) * len(found) // SIDE]
    first = np.arange(SIDE) * len(found) // SIDE
    return np.add.reduceat(found, first) / np.diff(np.append(first, len(found)))[:, None]
