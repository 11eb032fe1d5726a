"""Targets, some that suit the labelled images and some that do not: what `adamatch fit` warns of at its end.

    python benchmarks/targets.py --pacs DIR --office31 DIR --out results/targets.json --table results/targets.md

`fit` chooses everything itself. On two CPU cores a run takes about ten minutes, on a GPU two. Runs that are in the file
already are not done again.
"""

import json
from pathlib import Path
from typing import Any

import evidence
import numpy as np

import adamatch
from adamatch.base.files import read_json
from adamatch.datasets import rendered
from adamatch.images.reading import read
from adamatch.images.store import Pixels, Store
from adamatch.train.run_folder import RunFolder
from adamatch.verdict.verdict import FILE

SIZE = 224
MOST = 500  # objects, digits
ART = "art_painting"
ONLY = {"dogs and houses": ("dog", "house"), "houses": ("house",), "persons": ("person",)}
UNSUITABLE = [
    *(("photo", f"paintings, only {names}") for names in ONLY),
    ("photo", "paintings, a third of one grey each"),
    ("photo", "handwritten digits"),
    ("photo", "half paintings, half objects of no class"),
]
SUITABLE = [("photo", ART), ("photo", "cartoon"), (ART, "photo"), ("cartoon", "photo"), ("sketch", "photo")]
SUITABLE += [(ART, "cartoon"), ("cartoon", ART)]


def images(folder: Path) -> Store:
    return read(folder, size=SIZE, labelled=True, shape="crop")


def target(name: str, pacs: Path, office31: Path) -> Pixels:
    if (pacs / name).is_dir():
        return images(pacs / name).images
    if name == "handwritten digits":
        small = rendered.handwritten("train", 8).images[:MOST]
        return small.repeat(SIZE // 8, 1).repeat(SIZE // 8, 2)
    art = images(pacs / ART)
    if name.startswith("paintings, only "):
        wanted = [art.classes.index(each) for each in ONLY[name.removeprefix("paintings, only ")]]
        return art.images[np.flatnonzero(np.isin(np.asarray(art.labels), wanted))]
    if name == "paintings, a third of one grey each":
        found = art.images.copy()
        found[::3] = np.linspace(0, 255, len(found[::3])).astype(np.uint8)[:, None, None, None]
        return found
    both = art.images, images(office31 / "amazon" / "images").images
    return np.concatenate([each[np.linspace(0, len(each) - 1, MOST).astype(int)] for each in both])


def table(rows: dict[str, Any]) -> str:
    last = list(rows.values())[-1]
    made = f"PACS; one run each, seed 0. {last['machine']}, torch {last['versions']['torch']}, {last['date'][:10]}."
    head = ["# What `fit` warns of at its end", "", f"Made by `python benchmarks/targets.py`. {made}", ""]
    head += ["| labelled images -> target | suits | warnings |", "| --- | --- | --- |"]
    lines = [f"| {key} | {row['suits']} | {'<br>'.join(row['warnings']) or 'none'} |" for key, row in rows.items()]
    return "\n".join([*head, *lines]) + "\n"


def main() -> None:
    parser = evidence.options(__doc__)
    parser.add_argument("--pacs", type=Path, required=True)
    parser.add_argument("--office31", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs/targets"))
    parser.add_argument("--table", type=Path, required=True)
    given = parser.parse_args()
    rows: dict[str, Any] = json.loads(given.out.read_text()) if given.out.exists() else {}
    for source, name in UNSUITABLE + SUITABLE:
        key = f"{source} -> {name}"
        if key not in rows:
            folder = given.runs / key.replace(" ", "_").replace(",", "").replace(">", "")
            wanted = Store(target(name, given.pacs, given.office31), None, ())
            adamatch.fit(source=given.pacs / source, target=wanted, out=folder, quiet=True)
            warnings = [warning["line"] for warning in read_json(folder / FILE)["warnings"]]
            result = RunFolder(folder).result() or {}
            facts = {fact: result[fact] for fact in ("seconds", "machine", "versions", "date")}
            rows[key] = {"suits": "yes" if (source, name) in SUITABLE else "no", "warnings": warnings, **facts}
            evidence.write(given.out, rows)
            print(key, warnings, flush=True)
    given.table.write_text(table(rows))


if __name__ == "__main__":
    main()
