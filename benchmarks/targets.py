"""Targets, some that suit the labelled images and some that do not: what `adamatch fit` warns of at its end.

    python benchmarks/targets.py --pacs DIR --office31 DIR --out results/targets.json --table results/targets.md

`fit` chooses everything itself. On two CPU cores a run takes about ten minutes, on a GPU two. What is there counts as done.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import adamatch
from adamatch.base.files import read_json
from adamatch.datasets import rendered
from adamatch.finalise import JUDGED
from adamatch.images.reading import read
from adamatch.images.store import Store
from adamatch.train.run_folder import RunFolder

SIZE = 224
MOST = 500  # objects, digits
DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
UNSUITABLE = [
    ("photo", "paintings, only dogs and houses"),
    ("photo", "paintings, only houses"),
    ("photo", "paintings, only persons"),
    ("photo", "paintings, a third of one grey each"),
    ("photo", "handwritten digits"),
    ("photo", "half paintings, half objects of no class"),
]
SUITABLE = [
    ("photo", "art_painting"),
    ("photo", "cartoon"),
    ("art_painting", "photo"),
    ("cartoon", "photo"),
    ("sketch", "photo"),
    ("art_painting", "cartoon"),
    ("cartoon", "art_painting"),
]


def images(folder: Path) -> Store:
    return read(folder, size=SIZE, labelled=True, shape="crop")


def only(store: Store, *names: str) -> Store:
    rows = np.flatnonzero(np.isin(np.asarray(store.labels), [store.classes.index(name) for name in names]))
    return Store(store.images[rows], None, ())


def empty(store: Store) -> Store:
    """A third of it is of one grey each."""
    found = store.images.copy()
    found[::3] = np.linspace(0, 255, len(found[::3])).astype(np.uint8)[:, None, None, None]
    return Store(found, None, ())


def digits() -> Store:
    small = rendered.handwritten("train", 8).images[:MOST]
    return Store(np.repeat(np.repeat(small, SIZE // 8, 1), SIZE // 8, 2), None, ())


def half_objects(store: Store, objects: Store) -> Store:
    """Images, and as many of objects of no class."""
    mine, theirs = (each.images[np.linspace(0, len(each) - 1, MOST).astype(int)] for each in (store, objects))
    return Store(np.concatenate([mine, theirs]), None, ())


def target(name: str, pacs: Path, office31: Path) -> Store:
    if name in DOMAINS:
        return Store(images(pacs / name).images, None, ())
    if name == "handwritten digits":
        return digits()
    art = images(pacs / "art_painting")
    match name:
        case "paintings, only dogs and houses":
            return only(art, "dog", "house")
        case "paintings, only houses":
            return only(art, "house")
        case "paintings, only persons":
            return only(art, "person")
        case "paintings, a third of one grey each":
            return empty(art)
    return half_objects(art, images(office31 / "amazon" / "images"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pacs", type=Path, required=True)
    parser.add_argument("--office31", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/targets"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", type=Path, required=True)
    given = parser.parse_args()
    rows = json.loads(given.out.read_text()) if given.out.exists() else {}
    for source, name in UNSUITABLE + SUITABLE:
        key = f"{source} -> {name}"
        if key not in rows:
            folder = given.runs / key.replace(" ", "_").replace(",", "").replace(">", "")
            adamatch.fit(
                source=given.pacs / source, target=target(name, given.pacs, given.office31), out=folder, quiet=True
            )
            warnings = [warning["line"] for warning in read_json(folder / JUDGED)["warnings"]]
            result = RunFolder(folder).result() or {}
            rows[key] = {
                "warnings": warnings,
                **{fact: result[fact] for fact in ("seconds", "machine", "versions", "date")},
            }
            given.out.write_text(json.dumps(rows, indent=1) + "\n")
            print(key, warnings, flush=True)
    given.table.write_text(table(rows))


def table(rows: dict[str, Any]) -> str:
    last = list(rows.values())[-1]
    made = f"PACS; one run each, seed 0. {last['machine']}, torch {last['versions']['torch']}, {last['date'][:10]}."
    lines = [
        f"| {key} | {suits} | {'<br>'.join(rows[key]['warnings']) or 'none'} |"
        for suits, pairs in (("no", UNSUITABLE), ("yes", SUITABLE))
        for source, name in pairs
        if (key := f"{source} -> {name}") in rows
    ]
    head = ["# What `fit` warns of at its end", "", f"Made by `python benchmarks/targets.py`. {made}", ""]
    return "\n".join([*head, "| labelled images -> target | suits | warnings |", "| --- | --- | --- |", *lines]) + "\n"


if __name__ == "__main__":
    main()
