"""A saved run, as a ledger has it."""


def result(value: float, seconds: float = 1.0) -> dict[str, object]:
    return {"figures": {"1-nn": value}, "seconds": seconds, "device": "CPU", "date": "2026-11-15"}
