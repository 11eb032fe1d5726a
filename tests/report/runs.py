"""Runs to make pages of: folders of images with hostile names, and runs that were never trained."""

import json
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# Whatever a file system takes for a name; "/" and NUL alone it does not.
HOSTILE = (
    "<script>alert(1)<script>",
    "\"double\" & 'single' > <b>",
    "\u202eright to left \u05e9\u05dc\u05d5\u05dd",
    "cat \U0001f408\u200d\u2b1b\x07",
    "{{ 7 * 7 }} {% raw %} $& javascript:alert(1)",
)
VOID = {"meta", "link", "img", "br", "input", "hr"}


def images(folder: Path, classes: Sequence[str], count: int, *, size: int = 12, seed: int = 0) -> Path:
    """One folder per class of images in a colour of its own; file names are hostile, too."""
    rng = np.random.default_rng(seed)
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        base = np.array([60 + 150 * (number % 2), 60 + 75 * (number // 2 % 3), 200 - 60 * (number % 3)])
        for i in range(count):
            pixels = (base + rng.integers(-40, 40, (size, size, 3))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i} <img src=x onerror=alert(2)>.png")
    return folder


def made(
    path: Path,
    probabilities: Sequence[np.ndarray],
    classes: Sequence[str],
    *,
    held_out: int = 0,
    loss: float = 1.0,
    **result: Any,
) -> Path:
    """A run's folder as training leaves it, from what its network says: one array [n, k] for each evaluation."""
    (path / "outputs").mkdir(parents=True)
    recipe = {"network": "wrn-tiny", "size": 8, "images": 320, "batch": 32}
    run = {
        "benchmark": "folders",
        "task": "uda",
        "source": "a (01234567)",
        "target": "b (89abcdef)",
        "method": "adamatch",
    }
    (path / "run.json").write_text(
        json.dumps(run | {"seed": 0, "labels": 0, "weights": "", "options": {}, "recipe": recipe})
    )
    (path / "classes.json").write_text(json.dumps(classes))
    with (path / "metrics.jsonl").open("w") as file:
        for number, each in enumerate(probabilities, 1):
            arrays = {"target": each.astype(np.float16)} | (
                {"source": each[:held_out].astype(np.float16)} if held_out else {}
            )
            np.savez_compressed(path / f"outputs/step-{number:09d}.npz", **arrays)  # type: ignore[arg-type]
            row = {
                "step": number,
                "images": 32 * number,
                "loss_source": loss / number,
                "mask": number / 10,
                "seconds": number,
            }
            file.write(json.dumps(row) + "\n")
    if result:
        (path / "result.json").write_text(json.dumps(result | {"seconds": 12.5, "versions": {"torch": "2.x"}}))
    return path


def alone(path: Path) -> Path:
    """The same, as a run on the labelled images alone."""
    run = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(run | {"method": "supervised"}))
    return path


class Page(HTMLParser):
    """A page as a browser reads it: its tags with their attributes, the text between them, and where each id is."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.source = path.read_text()
        self.feed(self.source)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]
