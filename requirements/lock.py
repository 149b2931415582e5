"""Write requirements/serve.lock: what a service needs, pinned to constraints.txt, with the sha256 of every file that pip may fetch.

    python requirements/lock.py                                      # asks the package index; nothing is installed
    pip install --require-hashes -r requirements/serve.lock          # on the machine that serves, after torch

torch is left out: which of its builds is right depends on the machine's GPU, and builds for one version differ between indexes. Install
it first, from the index that its own page names, and check it by `pip hash` if you need to.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements/serve.lock"
PYTHONS = ("3.11", "3.12", "3.13")
PLATFORMS = {
    "Linux x86-64": ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "Linux ARM": ("manylinux_2_28_aarch64", "manylinux_2_27_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "macOS ARM": ("macosx_14_0_arm64", "macosx_12_0_arm64", "macosx_11_0_arm64"),
}
LEFT_OUT = {"torch"}


def wanted() -> list[Requirement]:
    """What pyproject.toml asks for in the core and for the service."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *project["optional-dependencies"]["serve"]]
    return [one for one in map(Requirement, lines) if canonicalize_name(one.name) not in LEFT_OUT]


def pins(path: Path) -> dict[str, str]:
    """The version of every package in a file of name==version lines."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s\\;]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in found}


def resolved(python: str, tags: tuple[str, ...]) -> list[dict[str, Any]]:
    """What pip would install there."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
        command += ["--target", place, "--python-version", python, "--implementation", "cp", "--report", str(report)]
        command += [word for tag in tags for word in ("--platform", tag)]
        subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), *map(str, wanted())], check=True)
        return list(json.loads(report.read_text(encoding="utf-8"))["install"])


def main() -> None:
    """Ask for every Python and platform, and write the file."""
    hashes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for python in PYTHONS:
        for name, tags in PLATFORMS.items():
            found = resolved(python, tags)
            print(f"Python {python}, {name}: {len(found)} packages")
            for one in found:
                about, archive = one["metadata"], one["download_info"]["archive_info"]
                hashes[canonicalize_name(about["name"]), about["version"]].add(archive["hashes"]["sha256"])
    systems = ", ".join(PLATFORMS)
    lines = [f"# Made by `python requirements/lock.py` for Python {', '.join(PYTHONS)} on {systems}. torch is left out; see there."]
    for (name, version), found_hashes in sorted(hashes.items()):
        lines += [f"{name}=={version} \\", *(f"    --hash=sha256:{one} \\" for one in sorted(found_hashes))]
        lines[-1] = lines[-1].removesuffix(" \\")
    LOCK.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
