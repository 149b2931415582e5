"""Recordings: their spectrograms do not depend on how they were stored, and a folder of them is trained on, indexed and searched."""

import wave
from pathlib import Path

import numpy as np
import pytest

import nearkin
from nearkin import data
from nearkin.cli import main
from nearkin.data.images import DamagedImageError, decode
from nearkin.data.sound import HIGHEST, LOWEST, SIDE, spectrogram


def recorded(path: Path, samples: np.ndarray, rate: int = 16_000, bits: int = 16, channels: int = 1) -> Path:
    """Write samples in -1..1 as PCM."""
    if bits == 8:
        raw = np.round(samples * 127 + 128).astype(np.uint8).tobytes()
    else:
        whole = np.round(samples.astype(np.float64) * (2 ** (bits - 1) - 1)).astype("<i4")
        raw = whole.view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()
    if channels == 2:
        raw = b"".join(raw[at : at + bits // 8] * 2 for at in range(0, len(raw), bits // 8))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(raw)
    return path


def tone(hertz: float, seconds: float = 0.5, rate: int = 16_000) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate) * 0.8


def test_a_tone_is_a_bright_line_at_its_pitch(tmp_path):
    def mel(hertz: float) -> float:
        return float(np.log10(1 + hertz / 700))

    for hertz in (200.0, 1000.0, 5000.0):
        picture = spectrogram(recorded(tmp_path / "t.wav", tone(hertz)).read_bytes())
        assert picture.shape == (SIDE, SIDE) and picture.dtype == np.uint8
        line = SIDE - 1 - picture.astype(float).mean(1).argmax()  # low notes are at the bottom
        assert abs(line - (mel(hertz) - mel(LOWEST)) / (mel(HIGHEST) - mel(LOWEST)) * SIDE) < 3
    half = np.concatenate([tone(1000.0, 0.25), np.zeros(4000)])
    picture = spectrogram(recorded(tmp_path / "h.wav", half).read_bytes())
    assert picture[:, : SIDE // 2 - 4].max() == 255 and picture[:, SIDE // 2 + 6 :].max() < 60


@pytest.mark.parametrize(("rate", "bits", "channels"), [(16_000, 8, 1), (16_000, 24, 1), (16_000, 32, 2), (44_100, 16, 2), (8_000, 16, 1)])
def test_rate_bits_and_channels_change_little(rate, bits, channels, tmp_path):
    first = spectrogram(recorded(tmp_path / "a.wav", tone(700) * 0.5 + tone(2500) * 0.5).read_bytes()).astype(float)
    other = tone(700, rate=rate) * 0.5 + tone(2500, rate=rate) * 0.5
    again = spectrogram(recorded(tmp_path / "b.wav", other, rate, bits, channels).read_bytes()).astype(float)
    loud = first > 150
    assert loud.any() and np.abs(first - again)[loud].mean() < 12


def test_short_recordings_are_stretched_and_damaged_ones_named(tmp_path):
    assert spectrogram(recorded(tmp_path / "click.wav", np.ones(3)).read_bytes()).shape == (SIDE, SIDE)
    empty = recorded(tmp_path / "empty.wav", np.ones(0))
    with pytest.raises(DamagedImageError, match=r"empty\.wav.*holds no sound"):
        decode(str(empty), 1)
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF\x00\x00\x00\x00WAVEfmt ")
    with pytest.raises(DamagedImageError, match=r"broken\.wav.*cannot be read .*save it as PCM"):
        decode(str(broken), 1)


def test_a_folder_of_recordings_is_trained_on_and_searched(tmp_path, capsys):
    draw = np.random.default_rng(0)
    for name, hertz in (("low", 300), ("high", 2400)):
        (tmp_path / "sounds" / name).mkdir(parents=True)
        for number in range(14):
            noisy = tone(hertz * draw.uniform(0.8, 1.25), 0.3 + 0.02 * number) + 0.05 * draw.standard_normal(
                round((0.3 + 0.02 * number) * 16_000)
            )
            recorded(tmp_path / "sounds" / name / f"{number}.wav", noisy.clip(-1, 1))
    sounds = data.open(tmp_path / "sounds")
    assert sounds.shape == (1, SIDE, SIDE) and sounds.classes == ("high", "low")
    words = [
        "train",
        str(tmp_path / "sounds"),
        "--from-scratch",
        "--size",
        "16",
        "--epochs",
        "3",
        "--out",
        str(tmp_path / "m"),
        "--device",
        "cpu",
    ]
    assert main([*words, "--network", "linear", "--set", "network.dimension=4"]) == 0
    model = nearkin.load(tmp_path / "m", device="cpu")
    asked = recorded(tmp_path / "new.wav", tone(2200))
    assert model.predict([str(asked)]) == ["high"]
    assert main(["index", str(tmp_path / "m"), str(tmp_path / "sounds")]) == 0
    capsys.readouterr()
    assert main(["search", str(tmp_path / "m"), str(asked)]) == 0 and "high/" in capsys.readouterr().out
