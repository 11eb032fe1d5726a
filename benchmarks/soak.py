"""Many fits and predictions in one process: memory, file handles and threads after the tenth and at the end.

OMP_NUM_THREADS=1 PYTHONPATH=src python benchmarks/soak.py --fits 200 --predictions 2000 --out results/soak.json
"""

import gc
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
from evidence import dated, options, write
from numpy.typing import NDArray

import adamatch
from adamatch.base.system import cores


def state() -> dict[str, float]:
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    threads = next(int(line.split()[1]) for line in lines if line.startswith("Threads"))
    handles = len(os.listdir("/proc/self/fd"))
    return {"resident_mb": round(resident / 1024, 1), "handles": handles, "threads": threads}


def images(count: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8), np.arange(count) % 3


def main() -> None:
    asked = options(__doc__)
    asked.add_argument("--fits", type=int, default=200)
    asked.add_argument("--predictions", type=int, default=2000)
    given = asked.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        for number in range(1, given.fits + 1):
            model = adamatch.fit(
                source=images(30, number),
                target=images(12, number + 1)[0],
                out=out,
                size=8,
                images=8,
                batch=4,
                device="cpu",
                quiet=True,
                overwrite=True,
                seed=number,
            )
            if number in (1, 10) or number % 50 == 0 or number == given.fits:
                rows.append({"after": f"{number} fits", **state()})
                print(rows[-1], flush=True)
        for number in range(1, given.predictions + 1):
            model.predict(images(5, number)[0])
            if number in (10, given.predictions):
                rows.append({"after": f"{number} predictions", **state()})
                print(rows[-1], flush=True)
    write(given.out, dated({"machine": f"{cores()} cores, CPU", "rows": rows}))
    assert threading.active_count() == 1


if __name__ == "__main__":
    main()
