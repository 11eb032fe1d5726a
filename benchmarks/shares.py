"""How near the target's classes, as each run found them without labels, are to those of the true labels.

Needs the prepared sets (`adamatch data prepare digitfive`) and the results of runs; trains nothing.

    python benchmarks/shares.py results/digitfive --data DATA --out results/shares.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from adamatch.config.run import Run
from adamatch.datasets import benchmarks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for path in sorted(given.results.glob("*-s[0-9]*.json")):
        result = json.loads(path.read_text())
        if not (found := result.get("target_shares")):
            continue
        run = Run.from_json(json.dumps(result["run"]))
        labels = np.asarray(benchmarks.load(run.benchmark, run.target, "train", given.data).labels)
        true = np.bincount(labels, minlength=len(found)) / len(labels)
        distance = float(np.abs(np.asarray(found) - true).sum() / 2)  # total variation
        rows.append({"run": run.name, "accuracy": result["accuracy"], "distance": round(distance, 4)})
        print(f"{run.name:60} {result['accuracy']:6.2f} {distance:.3f}")
    given.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
