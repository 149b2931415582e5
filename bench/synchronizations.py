"""Steps of every objective under CUDA's synchronization debug mode: `python -m bench.synchronizations [--out FILE.json]`.

Forward, backward and update of every objective and each of its options, for a small batch (the matrix) and a large one (the streaming
kernels). torch raises an error at the first operation that makes the host wait; the table names it. The first calls of a size are not
counted: kernels are compiled and their recordings made then.
"""

import argparse
import json
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from bench.catalog import DIMENSION, SIZE, Case, batch, cases, leaves

SMALL, LARGE, WARM, COUNTED = 64, 2200, 6, 3


def step(objective: Any, some: Any) -> None:
    """One training step but for the network and the optimizer."""
    live = some.embeddings.detach().requires_grad_()
    loss = objective(live, some.labels, ids=some.ids)
    torch.autograd.grad(loss, leaves(objective, live), allow_unused=True)
    objective.update(live.detach(), some.labels, ids=some.ids)


def synchronizations(case: Case, n: int, dtype: torch.dtype = torch.float32) -> str | None:
    """Where a step of n points makes the host wait; None where it never does."""
    objective = case.build().to("cuda")
    some = batch(objective.supervision, n, DIMENSION, "cuda", dtype)
    later = [some._replace(ids=(some.ids + number * n) % SIZE) for number in range(WARM + COUNTED)]  # other samples in every step
    for one in later[:WARM]:
        step(objective, one)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for one in later[WARM:]:
            step(objective, one)
    except RuntimeError as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "nearkin" in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno} {frames[-1].line}" if frames else "in backward, outside of Python"
        return f"{str(error).splitlines()[0]} at {where}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench.synchronizations needs a GPU: torch.cuda.is_available() is False here")
    rows = []
    for case in cases():
        for n in (SMALL, LARGE):
            found = synchronizations(case, n)
            rows.append({"objective": case.name, "points": n, "waits": found})
            print(f"{case.name:45s} {n:6d}  {found or 'never waits'}", flush=True)
    waiting = [row for row in rows if row["waits"]]
    print(f"{len(rows) - len(waiting)} of {len(rows)} steps never wait for the device")
    if given.out:
        about = {"date": datetime.now(UTC).date().isoformat(), "device": torch.cuda.get_device_name(), "torch": torch.__version__}
        given.out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    sys.exit(bool(waiting))


if __name__ == "__main__":
    main()
