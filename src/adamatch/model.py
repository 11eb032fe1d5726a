"""A trained classifier: predict, evaluate, save, load. On disk: safetensors for weights, JSON for all else, never pickle."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from adamatch import nets
from adamatch.data.decode import Shape
from adamatch.data.folders import read
from adamatch.data.listing import is_list
from adamatch.data.store import Pixels
from adamatch.errors import InputError
from adamatch.evaluate import Score, predict, score
from adamatch.judge import summary
from adamatch.train import speed
from adamatch.train.checkpoint import write_atomically, write_tensors
from adamatch.train.speed import Machine

VERSION = 1
NAMED = 10  # classes that are named
LISTED = 20  # unreadable images that are named one by one


@dataclass(frozen=True)
class Predictions:
    """For each image: its path (or number), the most likely class, and the probabilities (n, k) of all."""

    paths: tuple[str, ...]
    probabilities: NDArray[np.float32]
    classes: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)  # what could not be read, and why

    @property
    def labels(self) -> list[str]:
        return [self.classes[i] for i in self.probabilities.argmax(1)]

    def __len__(self) -> int:
        return len(self.paths)

    def to_csv(self, path: str | Path) -> Path:
        """A file of path, class, probability, then the probability of every class."""
        path = Path(path)
        with path.open("w", newline="", errors="surrogateescape") as file:
            csv.writer(file).writerows(csv_rows(self))
        return path

    def to_pandas(self) -> Any:
        """The same as a DataFrame, if pandas is installed."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("pandas is not installed: pip install pandas, or use to_csv") from None
        best = self.probabilities.max(1) if len(self) else []
        frame = pd.DataFrame({"path": self.paths, "class": self.labels, "probability": best})
        return frame.join(pd.DataFrame(self.probabilities, columns=list(self.classes)), rsuffix=" (class)")


@dataclass(frozen=True, repr=False)
class Model:
    """A network with the names of its classes and the image size that it takes."""

    net: nn.Module
    classes: tuple[str, ...]
    size: int
    network: str = ""  # its name, for `nets.build`; empty for a user's own
    machine: Machine = field(default_factory=speed.choose)
    history: dict[str, Any] = field(default_factory=dict)  # what training said of itself
    shape: Shape = "squeeze"  # how a rectangle becomes a square

    def __repr__(self) -> str:
        """What it is and how good it may be."""
        width = max(len(name) for name, _ in self._facts())
        return "\n".join(["adamatch.Model", *(f"  {name:{width}}  {value}" for name, value in self._facts())])

    def _repr_html_(self) -> str:
        """The same in notebooks; names are text, never markup."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts())
        return f"<table>{rows}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        names = ", ".join(self.classes[:NAMED]) + (", ..." if len(self.classes) > NAMED else "")
        network = self.network or type(self.net).__name__
        facts = [("network", f"{network}, images of {self.size} x {self.size}"), ("classes", f"{len(self.classes)}: {names}")]
        accuracy, verdict = self.history.get("accuracy"), self.history.get("judge")
        if accuracy is not None:
            facts.append(("measured on labelled target images", f"{accuracy:.1f} %"))
        return facts + (summary.table(verdict) if verdict else [])

    def predict(self, images: Any, *, skip_bad: bool = False) -> Predictions:
        """Classes of a file, a folder, a list of either, a CSV list, arrays or a torch dataset."""
        paths, pixels, skipped = self._read(images, skip_bad)
        return Predictions(paths, predict(self.net, pixels, self.machine), self.classes, skipped)

    def evaluate(self, images: Any, *, skip_bad: bool = False) -> Score:
        """Accuracy and a table per class on labelled images: one folder per class, a CSV, arrays with labels, a dataset."""
        store = read(images, size=self.size, classes=self.classes, labelled=True, shape=self.shape, skip_bad=skip_bad)
        found = score(predict(self.net, store.images, self.machine), store)
        return replace(found, skipped=store.info.get("skipped", {}))

    def _read(self, images: Any, skip_bad: bool) -> tuple[tuple[str, ...], Pixels, dict[str, str]]:
        """Names, pixels and what was skipped; of a list of paths all of them, one after the other."""
        if not (isinstance(images, list | tuple) and images and all(isinstance(each, str | Path) for each in images)):
            store = read(images, size=self.size, labelled=False, shape=self.shape, skip_bad=skip_bad)
            names = store.info.get("files", map(str, range(len(store))))
            return tuple(names), store.images, store.info.get("skipped", {})
        skipped: dict[str, str] = {}
        parts: list[tuple[tuple[str, ...], Pixels]] = []
        for each in images:
            try:
                names, pixels, bad = self._read(each, skip_bad)
            except InputError as error:
                if not skip_bad or len(images) == 1 or not Path(each).is_file() or is_list(each):
                    raise
                skipped[str(each)] = str(error)
            else:
                parts.append((names, pixels))
                skipped |= bad
        if not parts:
            raise InputError(f"none of {len(images)} images can be read, for example: {next(iter(skipped.values()))}")
        return tuple(name for names, _ in parts for name in names), np.concatenate([pixels for _, pixels in parts]), skipped

    def save(self, folder: str | Path) -> Path:
        """model.safetensors and model.json."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / ".model.safetensors.part"
        write_tensors(part, self.net.state_dict())
        part.replace(folder / "model.safetensors")
        facts = {
            "version": VERSION,
            "classes": self.classes,
            "size": self.size,
            "network": self.network,
            "shape": self.shape,
            "pixels": "(x-127.5)/128",
        }
        write_atomically(folder / "model.json", json.dumps({**facts, "history": self.history}, indent=1))
        return folder

    @classmethod
    def load(cls, folder: str | Path, *, net: nn.Module | None = None, device: str = "auto") -> Self:
        """A saved model; `net` is needed for a network of one's own, whose code is not saved."""
        folder = Path(folder)
        try:
            facts = json.loads((folder / "model.json").read_text())
        except (FileNotFoundError, NotADirectoryError):
            if (folder / "result.json").is_file():
                remedy = "its run is finished and the file was removed: copy it anew, or train again with --overwrite"
            elif (folder / "run.json").is_file():
                remedy = "its run is not finished: start it again"
            else:
                remedy = "give the folder that `adamatch fit --out` made"
            raise InputError(f"{folder} holds no model (no model.json): {remedy}") from None
        except ValueError:
            raise InputError(f"{folder}/model.json is damaged: train again, or copy it anew") from None
        version = facts.get("version") if isinstance(facts, dict) else None
        if version != VERSION:
            raise InputError(
                f"{folder}/model.json was written by another version of adamatch (format {version}, this one reads {VERSION}): "
                "load it with that version, or train again"
            )
        if not {"classes", "size", "network", "history"} <= facts.keys():
            raise InputError(f"{folder}/model.json is damaged: train again, or copy it anew")
        if net is None:
            if not facts["network"]:
                raise InputError(f"{folder} holds a network of your own: build it and give it as net=")
            net = nets.build(facts["network"], len(facts["classes"]))
        machine = speed.choose(device)
        try:
            (folder / "model.safetensors").open("rb").close()  # the library calls whatever it cannot open missing
            tensors = load_file(folder / "model.safetensors")
        except (OSError, SafetensorError) as error:
            first = (getattr(error, "strerror", None) or str(error).strip()).splitlines()[0].rstrip(":")
            raise InputError(f"{folder}/model.safetensors cannot be read ({first}): train again, or copy it anew") from None
        try:
            net.load_state_dict(tensors)
        except RuntimeError as error:
            first = str(error).strip().splitlines()[-1].strip()
            raise InputError(
                f"{folder}/model.safetensors holds another network than this {type(net).__name__} ({first})"
            ) from None
        net = net.to(machine.device).eval()
        classes, shape = tuple(facts["classes"]), facts.get("shape", "squeeze")
        return cls(net, classes, facts["size"], facts["network"], machine, facts["history"], shape)


def load(folder: str | Path, *, net: nn.Module | None = None, device: str = "auto") -> Model:
    """Open what `fit` saved."""
    return Model.load(folder, net=net, device=device)


def left_out(skipped: Mapping[str, str]) -> list[str]:
    """A line for each image that could not be read; of very many, the first twenty and how many more."""
    lines = [f"left out: {why}" for why in list(skipped.values())[:LISTED]]
    return lines + [f"left out: {len(skipped) - LISTED} more"] * (len(skipped) > LISTED)


def csv_rows(predictions: Predictions) -> list[list[str]]:
    """path, class, probability, then the probability of every class."""
    rows = [["path", "class", "probability", *predictions.classes]]
    for path, label, row in zip(predictions.paths, predictions.labels, predictions.probabilities, strict=True):
        rows.append([path, label, f"{row.max():.4f}", *(f"{value:.4f}" for value in row)])
    return rows
