"""Few labels and no source, as a user has them: `adamatch.fit` on the embedded handwriting, pre-trained as it chooses.

    python benchmarks/fit_few.py --out results/fit_few.json [--processes 2] [--seeds 3] [--labels 1 5]

For comparison without that pre-training, with thresholds of classes, and with the labelled images alone. Needs no data
and no GPU: about five minutes a run on one core. Tested on 500 images that are not trained on. Rows that are there are
not measured again.
"""

import tempfile
from itertools import product
from typing import Any

import torch
from evidence import MEASURED, Row, collect, options

import adamatch
from adamatch import plan
from adamatch.datasets.rendered import handwritten
from adamatch.train.run_folder import RunFolder

SIZE = 8
VARIANTS: dict[str, dict[str, Any]] = {  # arguments of fit
    "as fit chooses": {},
    "as fit chooses, thresholds of classes": {"options": {"threshold": "classes"}},
    "without a beginning": {},
    "without a beginning, thresholds of classes": {"options": {"threshold": "classes"}},
    "labelled images alone": {"method": "supervised"},
}


def trained(labels: int, variant: str, seed: int) -> Row:
    torch.set_num_threads(1)
    if variant.startswith("without a beginning"):
        plan.FEW = 0
    images, test = (handwritten(split, SIZE) for split in ("train", "test"))
    how: dict[str, Any] = {"labels_per_class": labels, "mirror": False, "seed": seed, "size": SIZE, "twin": False}
    with tempfile.TemporaryDirectory() as folder:
        adamatch.fit(source=images, target=images, test=test, out=folder, quiet=True, **how, **VARIANTS[variant])
        result = RunFolder(folder).result() or {}
    curve = [each["target"] for each in result["evaluations"]]
    row = {"variant": variant, "labels": labels, "seed": seed, "curve": curve}
    return row | {name: result[name] for name in (*MEASURED, "run")}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", type=int, nargs="*", default=(1, 5), help="labels per class")
    asked = parser.parse_args()
    every = product(asked.labels, VARIANTS, range(asked.seeds))
    collect(asked.out, ("labels", "variant", "seed"), every, trained, asked.processes)


if __name__ == "__main__":
    main()
