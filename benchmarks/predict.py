"""`adamatch predict` on very many images: memory above that of the network, and time per image.

    python benchmarks/predict.py [--images 200000] [--out results.json]

The images are PNG files of 32 x 32, generated, in folders of a thousand; the network is wrn-tiny on a CPU, with random
weights; predictions go to a CSV file. Memory is the largest resident set of the process, less that of the same command
on one image: Python, torch and the network. Claim, checked (exit code 1 where it does not hold): under 1 GiB.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import evidence
import numpy as np
import torch
from PIL import Image

from adamatch import Model, networks
from adamatch.base.system import cores
from adamatch.train import speed

CLASSES = ("blue", "green", "red")
NETWORK, SIZE, IN_A_FOLDER = "wrn-tiny", 32, 1000
LARGEST = 1.0  # GiB above the network


def write_images(folder: Path, count: int) -> None:
    """Noise of 4 x 4 made larger, so that files are of the size of small pictures and all differ."""
    random = np.random.default_rng(0)
    for number in range(count):
        place = folder / f"{number // IN_A_FOLDER:04d}"
        if number % IN_A_FOLDER == 0:
            place.mkdir(parents=True)
        coarse = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8))
        coarse.resize((SIZE, SIZE), Image.Resampling.BICUBIC).save(place / f"{number}.png", compress_level=1)


def predict(run: Path, images: Path, out: Path) -> dict[str, float]:
    """Seconds of the whole command, and the largest memory that it had in GiB; measured in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, "-m", "adamatch", "predict", str(run), str(images), "--csv", str(out), "--device", "cpu"]
    program = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    program += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    done = subprocess.run([sys.executable, "-c", program, *command], capture_output=True, text=True, check=True)
    return {"seconds": time.monotonic() - began, "GiB": int(done.stdout) / 2**20}


def measure(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        torch.manual_seed(0)
        net = networks.build(NETWORK, len(CLASSES)).eval()
        Model(net, CLASSES, SIZE, NETWORK, speed.choose("cpu")).save(folder / "run")
        write_images(folder / "images", count)
        one = predict(folder / "run", next((folder / "images/0000").iterdir()), folder / "one.csv")
        all_of_them = predict(folder / "run", folder / "images", folder / "all.csv")
        with (folder / "all.csv").open() as file:
            rows = sum(1 for _ in file) - 1
    assert rows == count, f"{rows} predictions of {count} images"
    return {
        "images": count,
        "kind": f"PNG files of {SIZE} x {SIZE}, in folders of {IN_A_FOLDER}",
        "network": NETWORK,
        "seconds, whole command": round(all_of_them["seconds"], 1),
        "ms per image": round(1000 * (all_of_them["seconds"] - one["seconds"]) / count, 3),
        "peak GiB": round(all_of_them["GiB"], 3),
        "peak GiB with one image": round(one["GiB"], 3),
        "GiB above the network": round(all_of_them["GiB"] - one["GiB"], 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    load = f"load {os.getloadavg()[0]:.1f} at the start, nice {os.getpriority(os.PRIO_PROCESS, 0)}"
    facts = {
        "command": f"python benchmarks/predict.py --images {asked.images}",
        "machine": f"{platform.machine()}, {cores()} cores, {torch.get_num_threads()} torch threads, {load}",
        **measure(asked.images),
    }
    print(json.dumps(facts, indent=1))
    if asked.out:
        evidence.write(asked.out, evidence.dated(facts))
    if facts["GiB above the network"] >= LARGEST:
        sys.exit(f"more than {LARGEST} GiB above the network")


if __name__ == "__main__":
    main()
