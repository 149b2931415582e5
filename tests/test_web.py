"""The explorer's page is shipped as its sources build it, and its lock file names no registry."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parent.parent / "web"


def test_the_lock_file_names_no_registry_and_pins_every_package() -> None:
    text = (WEB / "package-lock.json").read_text(encoding="utf-8")
    packages = json.loads(text)["packages"]
    assert "http" not in text and "resolved" not in text
    assert all(about.get("integrity", "").startswith("sha512-") for name, about in packages.items() if name)
    wanted = json.loads((WEB / "package.json").read_text(encoding="utf-8"))
    asked = {**wanted["dependencies"], **wanted["devDependencies"]}
    assert asked == {name: packages[f"node_modules/{name}"]["version"] for name in asked}


@pytest.mark.skipif(
    shutil.which("node") is None or not (WEB / "node_modules/esbuild").is_dir(),
    reason="needs Node and the packages that `make web` installs",
)
def test_what_is_shipped_is_what_the_sources_build() -> None:
    done = subprocess.run(["node", "build.mjs", "--check"], cwd=WEB, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
