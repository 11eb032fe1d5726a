"""How much domains of PACS look alike, by how many images of each there are; by this `fit` chooses a recipe.

    python benchmarks/likeness.py --data DIR --out results/likeness.json

DIR has photo/, art_painting/, cartoon/ and sketch/. Five draws of each number of images, on a CPU. For comparison the
same with ten neighbours, however few images there are.
"""

import itertools
from pathlib import Path

import evidence
import numpy as np
import torch
from torch import Tensor

from adamatch.config.presets import SIZE_ON_CPU
from adamatch.images.reading import read
from adamatch.initialise import domain_similarity, embed, propagate
from adamatch.networks.frozen import Whole
from adamatch.plan import LITE
from adamatch.train import speed

DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
COUNTS = (500, 250, 140, 84, 42, 20)
DRAWS = 5


def crossing(first: Tensor, second: Tensor, nearest: int) -> float:
    """The part of neighbours that are of different domains, in percent, as initialise/domain_similarity.py has it."""
    near = propagate.graph(torch.cat([first, second]), nearest).indices()
    return round(100 * float(((near[0] < len(first)) != (near[1] < len(first))).float().mean()), 2)


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    machine = speed.choose("cpu")
    whole = Whole(evidence.pretrained(LITE, 7)).eval()  # type: ignore[arg-type]  # an EfficientNet-Lite, by its name
    features = {}
    for domain in DOMAINS:
        images = read(given.data / domain, size=SIZE_ON_CPU, labelled=True, shape="crop").images
        rows = np.random.default_rng(0).permutation(len(images))[: max(COUNTS)]
        features[domain] = embed.features(whole, (np.asarray(images)[np.sort(rows)],), machine, max(COUNTS))
    found = []
    for (first, second), count in itertools.product(itertools.combinations(DOMAINS, 2), COUNTS):
        draws = [np.sort(np.random.default_rng(draw).permutation(max(COUNTS))[:count]) for draw in range(DRAWS)]
        row = {"domains": [first, second], "images": count}
        nearests = {"fewer neighbours of fewer images": domain_similarity.nearest(count), "ten": propagate.NEIGHBOURS}
        for name, nearest in nearests.items():
            row[name] = [crossing(features[first][rows], features[second][rows], nearest) for rows in draws]
        found.append(row)
        print(*row.values())
    facts = {"machine": str(machine), "size": SIZE_ON_CPU, "percent of neighbours that are of the other domain": found}
    evidence.write(given.out, evidence.dated(facts))


if __name__ == "__main__":
    main()
