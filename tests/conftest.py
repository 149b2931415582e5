"""One hypothesis profile for the whole suite: the same examples on every machine, and no stopwatch on a shared core."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "nearkin", derandomize=True, database=None, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nearkin")
