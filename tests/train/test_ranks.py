"""Two gloo ranks equal one process on the joined batch: every objective and its parameters, an uneven batch, the whole training set."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.train.rank_worker import all_results

WORKER = Path(__file__).with_name("rank_worker.py")


def test_two_ranks_equal_one(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(WORKER), str(tmp_path / "r")]
    subprocess.run(command, check=True, timeout=240, cwd=WORKER.parents[2], env={**os.environ, "PYTHONPATH": "src:."})
    alone = all_results()
    for rank in (0, 1):
        together = torch.load(tmp_path / f"r.{rank}", weights_only=True)
        assert together.keys() == alone.keys()
        for name, weights in alone.items():
            for key, value in weights.items():
                torch.testing.assert_close(together[name][key], value, rtol=0, atol=1e-10, msg=f"{name}: {key} on rank {rank}")
