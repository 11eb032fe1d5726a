"""What the scripts here share: their options, and results with the versions and the date."""

import argparse
import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from adamatch import networks
from adamatch.finalise import versions
from adamatch.networks.pretrained import imagenet
from adamatch.networks.weights import load_weights


def options(text: str | None) -> argparse.ArgumentParser:
    """With the script's own text as help, and --out."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    return parser


def write(path: Path, found: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


def dated(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {**facts, "versions": versions(), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def pretrained(network: str, classes: int) -> nn.Module:
    """With ImageNet's weights."""
    net = networks.build(network, classes)
    load_weights(net, imagenet(network))
    return net.eval()
