"""Preparation of stores: speed against a plain Pillow loop, memory, time to the first batch.

    python benchmarks/prepare.py [--out results.json]

Claims, checked in the same run (exit code 1 where one does not hold): at least 1.7 times a single-process Pillow loop
that makes the same pixels, on two cores at 224 x 224; under 1.5 GiB for 100,000 images at 64 x 64; first batch of a
prepared store in under 2 s.
"""

import argparse
import io
import json
import os
import platform
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from statistics import median
from typing import Any

import evidence
import numpy as np
import torch
from PIL import Image

from adamatch.base.system import cores
from adamatch.datasets.prepare import store_split
from adamatch.datasets.source import Split, from_names
from adamatch.images.decode import square
from adamatch.images.feed import Feed
from adamatch.images.store import Store
from adamatch.images.tasks import Unlabelled

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def archive(path: Path, count: int, width: int, height: int) -> Split:
    """A zip of `count` JPEGs with the detail of photographs (noise at every scale), of which 100 are different."""
    random = np.random.default_rng(0)
    names = [f"real/{i:06d}.jpg" for i in range(count)]
    different = []
    for _ in range(100):
        picture = np.zeros((height, width, 3))
        for scale in (4, 16, 64):
            coarse = random.integers(0, 256, (height // scale + 1, width // scale + 1, 3), dtype=np.uint8)
            picture += np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), float) / 3
        out = io.BytesIO()
        Image.fromarray(picture.astype(np.uint8)).save(out, "JPEG", quality=90)
        different.append(out.getvalue())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for i, name in enumerate(names):
            file.writestr(name, different[i % 100])
    return from_names(path, names, np.arange(count) % 345, tuple(map(str, range(345))))


def plain_loop(path: Path, size: int, out: Path, bicubic: bool) -> float:
    """Images/s of what one writes by hand: one process, one image after the other."""
    start = time.perf_counter()
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        images = np.lib.format.open_memmap(out, "w+", np.uint8, (len(names), size, size, 3))
        for i, name in enumerate(names):
            with Image.open(io.BytesIO(file.read(name))) as image:
                rgb = image.convert("RGB")
                images[i] = rgb.resize((size, size), Image.Resampling.BICUBIC) if bicubic else square(rgb, size)
        images.flush()
    return len(names) / (time.perf_counter() - start)


def prepared(split: Split, size: int, out: Path) -> float:
    """Images/s of the package."""
    start = time.perf_counter()
    for _ in store_split(lambda: split, out, size, info={}):
        pass
    return split.count / (time.perf_counter() - start)


def memory() -> int:
    """Bytes that this process has."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path)
    options = arguments.parse_args()
    results: dict[str, Any] = {
        "command": " ".join(sys.argv),
        "machine": f"{platform.machine()}, {cores()} cores, load {os.getloadavg()[0]:.1f} at the start",
    }
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        zipped, plain = folder / "large.zip", folder / "plain.npy"
        large = archive(zipped, 1500, 640, 480)
        turns = [  # in turns, so that another load on the machine hits all
            (plain_loop(zipped, 224, plain, False), plain_loop(zipped, 224, plain, True), prepared(large, 224, out))
            for out in (folder / f"large-{turn}" for turn in range(3))
        ]
        results["224"] = {
            "plain loop, the same pixels, images/s": round(median(same for same, _, _ in turns)),
            "plain loop, Pillow's bicubic resize, images/s": round(median(bicubic for _, bicubic, _ in turns)),
            "prepare, images/s": round(median(ours for _, _, ours in turns)),
            "times": round(median(ours / same for same, _, ours in turns), 2),
            "times bicubic": round(median(ours / bicubic for _, bicubic, ours in turns), 2),
        }
        small = archive(folder / "small.zip", 100_000, 200, 150)
        seen, ended = [memory()], threading.Event()

        def watch() -> None:
            while not ended.wait(0.1):
                seen.append(memory())

        threading.Thread(target=watch, daemon=True).start()
        rate = round(prepared(small, 64, folder / "small"))
        ended.set()
        gib = {"peak GiB": round(max(seen) / 2**30, 2), "of which before the start": round(seen[0] / 2**30, 2)}
        results["64"] = {"images": small.count, "images/s": rate} | gib
        start = time.perf_counter()
        store = Store.open(folder / "small")
        feed = Feed(Unlabelled((store.images,)), batch=256, classes=345, seed=0, device=DEVICE)
        float(feed.next()[0].float().mean())
        results["first batch, s"] = round(time.perf_counter() - start, 2)
    print(json.dumps(results, indent=1))
    if options.out:
        evidence.write(options.out, evidence.dated(results))
    claims = results["224"]["times"] >= 1.7, results["64"]["peak GiB"] < 1.5, results["first batch, s"] < 2
    return 0 if all(claims) else 1


if __name__ == "__main__":
    sys.exit(main())
