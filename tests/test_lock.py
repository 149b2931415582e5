"""The lock file of the service holds what pyproject.toml asks for, as constraints.txt pins it, with hashes, and nothing is missing."""

import re
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from requirements.lock import LEFT_OUT, LOCK, ROOT, pins, wanted

LOCKED = pins(LOCK)


def needed_by(name: str) -> set[str]:
    """What an installed package needs here, without its extras."""
    lines = map(Requirement, metadata.requires(name) or [])
    return {canonicalize_name(one.name) for one in lines if one.marker is None or one.marker.evaluate({"extra": ""})}


def test_it_holds_what_the_project_asks_for() -> None:
    for one in wanted():
        assert one.specifier.contains(LOCKED[canonicalize_name(one.name)]), f"{one}; run python requirements/lock.py"
    assert not set(LOCKED) & LEFT_OUT


def test_its_versions_are_those_of_the_constraints() -> None:
    constrained = pins(ROOT / "constraints.txt")
    assert {name: constrained[name] for name in LOCKED if name in constrained} == {
        name: version for name, version in LOCKED.items() if name in constrained
    }


def test_every_package_has_hashes_and_nothing_else_is_in_it() -> None:
    lines = [line for line in LOCK.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+ \\|    --hash=sha256:[0-9a-f]{64}(?: \\)?", line) for line in lines)
    parts = re.split(r"^(?=[a-z])", "\n".join(lines), flags=re.MULTILINE)[1:]
    assert len(parts) == len(LOCKED) and all("--hash=" in part for part in parts)


@pytest.mark.parametrize("name", sorted(LOCKED))
def test_what_its_packages_need_is_in_it(name: str) -> None:
    try:
        missing = needed_by(name) - set(LOCKED)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    assert not missing
