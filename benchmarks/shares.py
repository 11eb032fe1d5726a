"""How near the target's classes, as each run found them without labels, are to those of the true labels.

Needs the prepared sets (`adamatch data prepare digitfive`) and the results of runs; trains nothing.

    python benchmarks/shares.py results/digitfive --data DATA --out results/shares.json
"""

import json
from pathlib import Path

import evidence
from uneven import distance

from adamatch.config.run import Run
from adamatch.datasets import benchmarks


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    rows = []
    for path in sorted(given.results.glob("*-s[0-9]*.json")):
        result = json.loads(path.read_text())
        if found := result.get("target_shares"):
            run = Run.from_json(json.dumps(result["run"]))
            away = round(distance(found, benchmarks.load(run.benchmark, run.target, "train", given.data)), 4)
            rows.append({"run": run.name, "accuracy": result["accuracy"], "distance": away})
            print(f"{run.name:60} {result['accuracy']:6.2f} {away:.3f}")
    evidence.write(given.out, rows)


if __name__ == "__main__":
    main()
