"""A trained classifier: predict, evaluate, save, load. On disk: safetensors for weights, JSON for all else, never pickle."""

import json
import warnings
import webbrowser
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from adamatch import networks
from adamatch.base import locks
from adamatch.base.console import no_formula
from adamatch.base.errors import InputError, shortened
from adamatch.base.files import checksum, columns, make_folder, read_json, sealed, unsealed, write_atomically
from adamatch.config.recipe import LARGEST_SIZE
from adamatch.evaluate import Score, predict, score
from adamatch.images.decode import SIXTEEN_BITS, Shape
from adamatch.images.folders import read
from adamatch.images.stream import How, stream
from adamatch.train import speed
from adamatch.train.checkpoint import write_tensors
from adamatch.train.resume import EARLIER
from adamatch.train.speed import Machine
from adamatch.verdict import summary

VERSION = 1
KINDS = {"classes": list, "size": int, "network": str, "history": dict}  # of what model.json has
NAMED = 10  # classes that are named
LISTED = 20  # unreadable images that are named one by one


@dataclass(frozen=True)
class Predictions:
    """For each image: its path (or number), the most likely class, and the probabilities (n, k) of all."""

    paths: tuple[str, ...]
    probabilities: NDArray[np.float32]
    classes: tuple[str, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)  # what could not be read, and why
    notes: tuple[str, ...] = ()  # what a person should know of how images were read

    @property
    def labels(self) -> list[str]:
        return [self.classes[i] for i in self.probabilities.argmax(1)]

    def __len__(self) -> int:
        return len(self.paths)

    def to_csv(self, path: str | Path) -> Path:
        """A file of path, class, probability, then the probability of every class."""
        from adamatch.report import prediction_files  # it needs Predictions in turn

        prediction_files.refuse_the_same([Path(path)], [])
        with prediction_files.csv_file(Path(path), self.classes) as write:
            write(self)
        return Path(path)

    def to_pandas(self) -> Any:
        """The same as a DataFrame, if pandas is installed."""
        try:
            import pandas as pd
        except ImportError:
            raise InputError("pandas is not installed: pip install pandas, or use to_csv") from None
        values = [self.paths, self.labels, self.probabilities.max(1) if len(self) else [], *self.probabilities.T]
        return pd.DataFrame(dict(zip(columns(self.classes), values, strict=True)))


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
    folder: Path | None = None  # the run's, where there is one
    white: int = 0  # which value of 16-bit images is white; 0: not known, it is found among those that are given

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
        facts = [
            ("network", f"{network}, images of {self.size} x {self.size}"),
            ("classes", f"{len(self.classes)}: {names}"),
        ]
        accuracy, verdict = self.history.get("accuracy"), self.history.get("judge")
        if accuracy is not None:
            facts.append(("measured on labelled target images", f"{accuracy:.1f} %"))
        return facts + (summary.table(verdict) if verdict else [])

    def predict(self, images: Any, *, skip_bad: bool = False) -> Predictions:
        """Classes of an image, a folder, a CSV list, a list of these, a DataFrame, arrays or a dataset (docs/inputs.md)."""
        parts = list(self.stream(images, skip_bad=skip_bad)[1])
        skipped = {name: why for part in parts for name, why in part.skipped.items()}
        paths = tuple(path for part in parts for path in part.paths)
        notes = tuple(note for part in parts for note in part.notes)
        return Predictions(paths, np.concatenate([part.probabilities for part in parts]), self.classes, skipped, notes)

    def stream(self, images: Any, *, skip_bad: bool = False) -> tuple[int, Iterator[Predictions]]:
        """The same for any number of images: how many (0: not known), and predictions a portion at a time."""
        count, stores = stream(images, How(self.size, self.shape, skip_bad, self.white))

        def portions() -> Iterator[Predictions]:
            for store in stores:
                probabilities = predict(self.net, store.images, self.machine)
                files, notes = tuple(store.info["files"]), tuple(store.info.get("notes", ()))
                yield Predictions(files, probabilities, self.classes, store.info["skipped"], notes)

        return count, portions()

    def evaluate(self, images: Any, *, skip_bad: bool = False) -> Score:
        """Accuracy and a table per class on labelled images: one folder per class, a CSV, arrays with labels, a dataset."""
        how: dict[str, Any] = {"size": self.size, "shape": self.shape, "white": self.white, "skip_bad": skip_bad}
        store = read(images, classes=self.classes, labelled=True, leave=True, **how)
        found = score(predict(self.net, store.images, self.machine), store)
        return replace(found, skipped=store.info.get("skipped", {}), notes=tuple(store.info.get("notes", ())))

    def report(self, *, show: bool = False) -> Path:
        """Make the page of the model's run anew, and return where it is: report.html in the run's folder. `show` opens it."""
        from adamatch.report import page  # it stands on models

        if self.folder is None:
            raise InputError(
                "this model is of no run: a page needs the folder that fit or train made (adamatch.load(FOLDER))"
            )
        made = page.write(self.folder)
        if show:
            webbrowser.open(made.absolute().as_uri())
        return made

    def export(self, file: str | Path, *, to: str | None = None) -> float:
        """One file for use elsewhere, .onnx or .pt2 (torch.export): uint8 images in, probabilities out; see `adamatch.export`.

        Returns the largest difference of its probabilities to those of `predict`; above 1e-4 no file is written.
        """
        from adamatch.export import export  # it needs Model in turn

        return export(self, file, to)

    def save(self, folder: str | Path) -> Path:
        """model.safetensors and model.json. A network of one's own is opened with its module: `load(folder, net=...)`."""
        folder = Path(folder)
        make_folder(folder)
        write_tensors(folder / "model.safetensors", self.net.state_dict())
        facts: dict[str, Any] = {
            "version": VERSION,
            "classes": self.classes,
            "size": self.size,
            "network": self.network,
            "shape": self.shape,
            "pixels": "(x-127.5)/128",
            "history": self.history,
            **({"white": self.white} if self.white else {}),
            "sha256": checksum(folder / "model.safetensors"),
        }
        write_atomically(folder / "model.json", json.dumps(sealed(facts), indent=1))
        return folder

    @classmethod
    def load(cls, folder: str | Path, *, net: nn.Module | None = None, device: str = "auto") -> Self:
        """A saved model; `net` is needed for a network of one's own."""
        folder = Path(folder)
        facts = _facts(folder)
        if net is None and facts["network"]:
            net = networks.build(facts["network"], len(facts["classes"]))
        if net is None:
            remedy = "in Python, build it and give it as net= to adamatch.load"
            raise InputError(f"{folder} holds a network of your own: {remedy}")
        machine = speed.choose(device)
        tensors = _tensors(folder / "model.safetensors", facts.get("sha256"))
        try:
            net.load_state_dict(tensors)
        except RuntimeError as error:
            first = str(error).strip().splitlines()[-1].strip()
            raise InputError(
                f"{folder}/model.safetensors holds another network than this {type(net).__name__} ({first})"
            ) from None
        net = net.to(machine.device).eval()
        classes, shape = tuple(facts["classes"]), facts.get("shape", "squeeze")
        about = (facts["network"], machine, facts["history"], shape, folder, facts.get("white", 0))
        return cls(net, classes, facts["size"], *about)


def _facts(folder: Path) -> dict[str, Any]:
    """What model.json says, checked."""
    try:
        found = read_json(folder / "model.json")
    except (FileNotFoundError, NotADirectoryError):
        if (folder / "result.json").is_file():
            remedy = "its run is finished and the file was removed: copy it anew, or train again with --overwrite"
        elif (folder / "run.json").is_file():
            running = locks.is_locked(folder / ".lock")
            remedy = "its run is not finished: " + ("wait for it" if running else "run the same command again")
            remedy += (
                f", or take {folder / EARLIER}, the run before it"
                if (folder / EARLIER / "model.json").is_file()
                else ""
            )
        else:
            remedy = "give the folder that `adamatch fit --out` made"
        raise InputError(f"{folder} holds no model (no model.json): {remedy}") from None
    except ValueError:
        raise InputError(f"{folder}/model.json is damaged: train again, or copy it anew") from None
    version = found.get("version") if isinstance(found, dict) else None
    if version != VERSION:
        raise InputError(
            f"{folder}/model.json was written by another version of adamatch (format {shortened(version)}, this one reads "
            f"{VERSION}): load it with that version, or train again"
        )
    try:
        facts = unsealed(found)
        sound = all(type(facts.get(name)) is kind for name, kind in KINDS.items())
    except ValueError:
        sound = False
    sound = (
        sound
        and {type(name) for name in facts["classes"]} == {str}
        and facts.get("shape", "squeeze") in get_args(Shape)
    )
    sound = sound and type(facts.get("white", 0)) is int and 0 <= facts.get("white", 0) <= SIXTEEN_BITS
    if not (sound and 1 <= facts["size"] <= LARGEST_SIZE and _is_history(facts["history"])):
        raise InputError(f"{folder}/model.json is damaged: train again, or copy it anew")
    return facts


def _is_history(found: Mapping[str, Any]) -> bool:
    """Whether what is shown of a model's training can be: of a file without a checksum it may be anything."""
    accuracy, verdict = found.get("accuracy"), found.get("judge")
    return isinstance(accuracy, int | float | None) and (not verdict or summary.readable(verdict))


def _tensors(path: Path, known: Any) -> dict[str, Tensor]:
    """The weights, of which model.json has the checksum."""
    try:
        found = checksum(path)
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        first = (getattr(error, "strerror", None) or str(error).strip()).splitlines()[0].rstrip(":")
        raise InputError(f"{path} cannot be read ({first}): train again, or copy it anew") from None
    if known is not None and found != known:
        raise InputError(f"{path} was changed since it was saved (its checksum differs): train again, or copy it anew")
    if known is None:
        warnings.warn(f"{path} was saved without a checksum: damage to it would not be noticed", stacklevel=4)
    return tensors


def load(folder: str | Path, *, net: nn.Module | None = None, device: str = "auto") -> Model:
    """Open what `fit` saved."""
    return Model.load(folder, net=net, device=device)


def left_out(skipped: Mapping[str, str]) -> list[str]:
    """A line for each image that could not be read; of very many, the first twenty and how many more."""
    lines = [f"left out: {why}" for why in list(skipped.values())[:LISTED]]
    return lines + [f"left out: {len(skipped) - LISTED} more"] * (len(skipped) > LISTED)


def csv_rows(predictions: Predictions) -> list[list[str]]:
    """path, class, probability, then the probability of every class."""
    rows = [columns(map(no_formula, predictions.classes))]
    for path, label, row in zip(predictions.paths, predictions.labels, predictions.probabilities, strict=True):
        rows.append([no_formula(path), no_formula(label), f"{row.max():.4f}", *(f"{value:.4f}" for value in row)])
    return rows
