"""Linear classifiers of the features that ImageNet's weights give, without training: pairs of PACS or Office-31.

    python benchmarks/linear.py office31 --data DIR --out results/linear_office31.json

"linear" learns from the labelled images alone. The others guess the target's labels from neighbours. These are found
by features with the statistics of batch norm that ImageNet left ("neighbours"), with those of batches of both domains
("of both domains"), or by both together ("together"). "start" is the head that a run with `fitted_head` begins with.
Test images are all of the target's.
"""

import itertools
import statistics
from pathlib import Path

import evidence
import torch
from photographs import DOMAINS, INSIDE
from torch import Tensor

from adamatch.images.reading import read
from adamatch.images.tasks import Labelled, Unlabelled, labelled
from adamatch.initialise import embed, propagate
from adamatch.initialise.probe import classifier
from adamatch.train import speed


def accuracies(source: Labelled, target: Labelled, classes: int, network: str) -> dict[str, float]:
    """Of all that are compared, on the target."""
    machine = speed.choose()
    net = evidence.pretrained(network, classes).to(machine.device)
    y_s, y_t = (embed.labels(each, classes, machine) for each in (source, target))

    def right(guesses: Tensor) -> float:
        return round(100 * float((guesses.argmax(1) == y_t.argmax(1)).float().mean()), 1)

    def guess(x_s: Tensor, x_t: Tensor) -> Tensor:
        return propagate.guess([(x_s, y_s)], x_t)

    before, now = embed.embed(net, [source], Unlabelled(target.parts), machine, keep_statistics=False)
    (x_s, x_t), (z_s, z_t) = before, now
    weight, bias = classifier(x_s, y_s)
    together = guess(torch.cat([x_s, z_s], 1), torch.cat([x_t, z_t], 1))
    found = {"linear": right(x_t @ weight.T + bias), "neighbours": right(guess(x_s, x_t))}
    found |= {"of both domains": right(guess(z_s, z_t)), "together": right(together)}
    weight, bias = classifier(torch.cat([z_s, z_t]), torch.cat([y_s, together]))
    return found | {"start": right(z_t @ weight.T + bias)}


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("set", choices=DOMAINS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=224)
    given = parser.parse_args()
    folders = {domain: given.data / domain / INSIDE[given.set] for domain in DOMAINS[given.set]}
    stores = {domain: read(folder, size=given.size, labelled=True, shape="crop") for domain, folder in folders.items()}
    found: dict[str, dict[str, float]] = {}
    for source, target in itertools.permutations(stores, 2):
        pools, classes = (labelled(stores[source]), labelled(stores[target])), len(stores[source].classes)
        found[f"{source} -> {target}"] = accuracies(*pools, classes, given.network)
        print(source, target, found[f"{source} -> {target}"], flush=True)
    names = next(iter(found.values()))
    means = {name: round(statistics.mean(each[name] for each in found.values()), 1) for name in names}
    facts = {"network": given.network, "size": given.size, "machine": str(speed.choose())}
    evidence.write(given.out, evidence.dated({**facts, "mean": means, "accuracy": found}))


if __name__ == "__main__":
    main()
