"""How much domains of PACS look alike, by how many images of each there are; what `fit` asks before it chooses a recipe.

    python benchmarks/likeness.py --data DIR --out results/likeness.json     (DIR: photo/, art_painting/, cartoon/, sketch/)

Five draws of each number of images, on a CPU. For comparison the same with ten neighbours, however few images there are.
"""

import argparse
import datetime
import itertools
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from adamatch import networks
from adamatch.experiment import versions
from adamatch.images.reading import read
from adamatch.initialise import domain_similarity, linear_probe, propagate
from adamatch.networks.frozen import Whole
from adamatch.networks.pretrained import imagenet
from adamatch.networks.weights import load_weights
from adamatch.plan import FROZEN_SIZE, LITE
from adamatch.train import speed

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
COUNTS = (500, 250, 140, 84, 42, 20)
DRAWS = 5


def crossing(first: Tensor, second: Tensor, nearest: int) -> float:
    """The part of neighbours that are of different domains, in percent, as train/likeness.py has it."""
    near = propagate.graph(torch.cat([first, second]), nearest).indices()
    return 100 * float(((near[0] < len(first)) != (near[1] < len(first))).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    machine = speed.choose("cpu")
    net = networks.build(LITE, 7)
    load_weights(net, imagenet(LITE))
    whole = Whole(net).eval()  # type: ignore[arg-type]  # an EfficientNet-Lite, by its name
    seen = {}
    for domain in DOMAINS:
        images = read(given.data / domain, size=FROZEN_SIZE, labelled=True, shape="crop").images
        rows = np.random.default_rng(0).permutation(len(images))[: max(COUNTS)]
        seen[domain] = linear_probe.features(whole, (np.asarray(images)[np.sort(rows)],), machine, max(COUNTS))
    facts = {
        "machine": str(machine),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
        "size": FROZEN_SIZE,
    }
    found = []
    for first, second in itertools.combinations(DOMAINS, 2):
        for count in COUNTS:
            draws = [
                [np.sort(np.random.default_rng(draw).permutation(max(COUNTS))[:count])] * 2 for draw in range(DRAWS)
            ]
            row = {"domains": [first, second], "images": count}
            for name, nearest in (
                ("fewer neighbours of fewer images", domain_similarity.nearest(count)),
                ("ten", propagate.NEIGHBOURS),
            ):
                row[name] = [round(crossing(seen[first][a], seen[second][b], nearest), 2) for a, b in draws]
            found.append(row)
            print(*row.values())
    given.out.write_text(
        json.dumps(facts | {"percent of neighbours that are of the other domain": found}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
