"""Linear classifiers of the features that ImageNet's weights give, as they are: each pair of PACS or Office-31.

    python benchmarks/linear.py office31 --data DIR --out results/linear_office31.json

"linear" learns from the labelled images alone. "neighbours" learns from the target's, too, with the labels of their neighbours:
it is what a run with `fitted_head` starts from. Test images are all of the target's.
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

from adamatch import nets
from adamatch.data.folders import read
from adamatch.data.tasks import labelled
from adamatch.experiment import versions
from adamatch.nets.pretrained import imagenet
from adamatch.nets.weights import load_weights
from adamatch.train import head, neighbours, speed


def features(folder: Path, given: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Of a domain's images, [n, d], and their labels, [n, k]."""
    store = read(folder, size=given.size, labelled=True, shape="crop")
    net = nets.build(given.network, len(store.classes))
    load_weights(net, imagenet(given.network))
    machine = speed.choose()
    return head.looked_at(net.to(machine.device).eval(), labelled(store), len(store.classes), machine)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=DOMAINS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    found = {domain: features(given.data / domain / INSIDE[given.set], given) for domain in DOMAINS[given.set]}
    accuracies: dict[str, dict[str, float]] = {"linear": {}, "neighbours": {}}
    for source, target in itertools.permutations(found, 2):
        pair, labelled, (x, y) = f"{source} -> {target}", found[source], found[target]
        guessed = (x, neighbours.guess([labelled], x, head.classifier))
        for name, pools in (("linear", [labelled]), ("neighbours", [labelled, guessed])):
            weight, bias = head.classifier(*(torch.cat(each) for each in zip(*pools, strict=True)))
            right = (x @ weight.T + bias).argmax(1) == y.argmax(1)
            accuracies[name][pair] = round(100 * float(right.float().mean()), 1)
        print(f"{pair}: {accuracies['linear'][pair]}, with neighbours {accuracies['neighbours'][pair]}", flush=True)
    facts = {"network": given.network, "size": given.size, "machine": str(speed.choose()), "versions": versions()}
    facts |= {"date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}
    facts |= {"mean": {name: round(statistics.mean(each.values()), 1) for name, each in accuracies.items()}}
    facts |= {"accuracy": accuracies}
    given.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
