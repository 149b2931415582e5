"""One hypothesis profile for the whole suite: the same examples on every machine, and no stopwatch on a shared core."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "nearkin", derandomize=True, database=None, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nearkin")


@pytest.fixture(autouse=True, scope="session")
def _settings_of_nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What nearkin remembers for its user must not be what it remembers for the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield
