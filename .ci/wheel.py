"""Build wheel and sdist, check them, and try the wheel in a clean environment as a new user would."""

import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SLOWEST_IMPORT = 0.1  # seconds


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """What a command prints; its failure ends the check."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def check_contents(wheel: Path, sdist: Path) -> None:
    """Only the package is shipped, with what it needs; and the sdist has its license and tests."""
    names = zipfile.ZipFile(wheel).namelist()
    others = sorted({name.split("/")[0] for name in names} - {"nearkin"})
    if [name for name in others if not name.endswith(".dist-info")]:
        sys.exit(f"the wheel holds more than the package: {others}")
    needed = ("py.typed", "objectives/papers.bib", "train/retrieval.json", "serve/atlas/page/index.html")
    missing = [name for name in needed if f"nearkin/{name}" not in names]
    with tarfile.open(sdist) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    missing += [
        name for name in ("LICENSE", "README.md", "pyproject.toml", "src/nearkin/__init__.py", "tests/conftest.py") if name not in packed
    ]
    if missing:
        sys.exit(f"missing from the distributions: {missing}")


def readme_example() -> str:
    """The complete Python example of the README: the block that imports all it uses."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (example,) = [block for block in blocks if block.startswith("import torch")]
    return str(example)


def environment(folder: Path, *packages: str | Path) -> Path:
    """The Python of a new environment with these packages, installed one after the other."""
    venv.create(folder, with_pip=True)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "-c", ROOT / "constraints.txt")
    for package in packages:
        run(folder / "bin/python", *pip, package)
    return folder / "bin/python"


def try_wheel(wheel: Path, folder: Path) -> None:
    """Install it into an environment of its own and use it there."""
    python = environment(folder / "venv", "torch==2.13.0", wheel)
    run(python, "-c", readme_example(), cwd=folder)
    run(folder / "venv/bin/nearkin", "--help", cwd=folder)
    timed = "import time; start = time.perf_counter(); import nearkin; print(time.perf_counter() - start)"
    seconds = min(float(run(python, "-c", timed, cwd=folder)) for _ in range(3))
    if seconds > SLOWEST_IMPORT:
        sys.exit(f"import nearkin takes {seconds:.3f} s; it should take less than {SLOWEST_IMPORT} s")
    print(f"{wheel.name}: README's example runs, nearkin --help answers, import nearkin takes {seconds:.3f} s")


def main() -> None:
    """All of it, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        tools = environment(folder / "tools", "build", "twine")
        run(tools, "-m", "build", "--outdir", folder / "dist")
        (wheel,), (sdist,) = (folder / "dist").glob("*.whl"), (folder / "dist").glob("*.tar.gz")
        run(tools, "-m", "twine", "check", "--strict", wheel, sdist)
        check_contents(wheel, sdist)
        try_wheel(wheel, folder)


if __name__ == "__main__":
    main()
