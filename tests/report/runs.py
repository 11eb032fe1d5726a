"""Runs to make pages of: folders of images with hostile names, and runs that were never trained."""

import json
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from adamatch.base import manifest
from adamatch.base.files import SEAL, sealed
from adamatch.config.recipe import Recipe
from adamatch.config.run import Run

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
    held_out: Sequence[int] = (),
    method: str = "adamatch",
    loss: float = 1.0,
    judge: Mapping[str, Any] | None = None,
    **result: Any,
) -> Path:
    """A run's folder as training leaves it, from what its network says: one array [n, k] for each evaluation.

    held_out: labels of the first images, which are then in the source as well; judge: the verdict, as far as needed.
    """
    (path / "outputs").mkdir(parents=True)
    short = Recipe(network="wrn-tiny", size=8, images=320, batch=32, weight_decay=0.0005)
    run = Run(benchmark="folders", source="a", target="b", method=method, recipe=short)
    (path / "run.json").write_text(run.to_json())
    seal(path / "outputs/classes.json", {"classes": list(classes), "source": list(held_out)})
    with (path / "metrics.jsonl").open("w") as file:
        for number, each in enumerate(probabilities, 1):
            arrays = {"target": each.astype(np.float16)}
            arrays |= {"source": arrays["target"][: len(held_out)]} if held_out else {}
            np.savez_compressed(path / f"outputs/step-{number:09d}.npz", **arrays)  # type: ignore[arg-type]
            measured = {"loss_source": loss / number, "mask": number / 10, "seconds": number}
            file.write(json.dumps({"step": number, "images": 32 * number} | measured) + "\n")
    if judge is not None:
        seal(path / "judge.json", judge)
    if result:
        seal(path / "result.json", result | {"seconds": 12.5, "versions": {"torch": "2.x"}})
    return path


def seal(path: Path, facts: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(sealed(facts)))


def edit(path: Path, **changes: Any) -> None:
    """Other values in a JSON file, with its checksum if it had one; its folder's list leaves it out."""
    facts = json.loads(path.read_text())
    sound = facts.pop(SEAL, None) is not None
    manifest.forget(path.parent, path.name)
    path.write_text(json.dumps(sealed(facts | changes) if sound else facts | changes))


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
