"""Linear classifiers of the features that ImageNet's weights give, without any training: each pair of PACS or Office-31.

    python benchmarks/linear.py office31 --data DIR --out results/linear_office31.json

"linear" learns from the labelled images alone. The others guess the target's labels from neighbours. These are found by
features with the statistics of batch norm that ImageNet left ("neighbours"), with those of batches of both domains ("of both
domains"), or by both together ("together"). "start" is the head that a run with `fitted_head` begins with. Test images are all
of the target's.
"""

import argparse
import datetime
import itertools
import json
import statistics
from pathlib import Path

import torch
from photographs import DOMAINS, INSIDE
from torch import Tensor

from adamatch import networks
from adamatch.experiment import versions
from adamatch.images.reading import read
from adamatch.images.tasks import Labelled, Unlabelled, labelled
from adamatch.initialise import linear_probe, propagate
from adamatch.networks.norm import estimate_statistics
from adamatch.networks.pretrained import imagenet
from adamatch.networks.weights import load_weights
from adamatch.train import speed


def accuracies(source: Labelled, target: Labelled, classes: int, network: str) -> dict[str, float]:
    """Of all that are compared, on the target."""
    machine = speed.choose()
    net = networks.build(network, classes)
    load_weights(net, imagenet(network))
    net.to(machine.device).eval()
    y_s, y_t = (linear_probe.labels(each, classes, machine) for each in (source, target))

    def by_features() -> tuple[Tensor, Tensor]:
        return linear_probe.features(net.eval(), source.parts, machine), linear_probe.features(
            net, target.parts, machine
        )

    def right(guesses: Tensor) -> float:
        return round(100 * float((guesses.argmax(1) == y_t.argmax(1)).float().mean()), 1)

    def guess(x_s: Tensor, x_t: Tensor) -> Tensor:
        return propagate.guess([(x_s, y_s)], x_t, linear_probe.classifier)

    x_s, x_t = by_features()
    weight, bias = linear_probe.classifier(x_s, y_s)
    estimate_statistics(net, linear_probe.batches([source], Unlabelled(target.parts), machine))
    z_s, z_t = by_features()
    together = guess(torch.cat([x_s, z_s], 1), torch.cat([x_t, z_t], 1))
    found = {"linear": right(x_t @ weight.T + bias), "neighbours": right(guess(x_s, x_t))}
    found |= {"of both domains": right(guess(z_s, z_t)), "together": right(together)}
    weight, bias = linear_probe.classifier(torch.cat([z_s, z_t]), torch.cat([y_s, together]))
    return found | {"start": right(z_t @ weight.T + bias)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=DOMAINS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    domains = [given.data / domain / INSIDE[given.set] for domain in DOMAINS[given.set]]
    stores = [read(folder, size=given.size, labelled=True, shape="crop") for folder in domains]
    pools = dict(zip(DOMAINS[given.set], map(labelled, stores), strict=True))
    found: dict[str, dict[str, float]] = {}
    for source, target in itertools.permutations(pools, 2):
        pair = f"{source} -> {target}"
        found[pair] = accuracies(pools[source], pools[target], len(stores[0].classes), given.network)
        print(pair, found[pair], flush=True)
    facts = {"network": given.network, "size": given.size, "machine": str(speed.choose()), "versions": versions()}
    facts |= {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
    means = {
        name: round(statistics.mean(each[name] for each in found.values()), 1) for name in next(iter(found.values()))
    }
    given.out.write_text(json.dumps(facts | {"mean": means, "accuracy": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
