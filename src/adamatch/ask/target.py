"""What a run says of its target: every unlabelled image with the predictions of the model and of its twin.

`fit` writes predictions.npz at its end. The files' names are in images.json, in the same order.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from adamatch.base import manifest
from adamatch.base.errors import InputError
from adamatch.base.files import read_checked, read_sealed, write_whole
from adamatch.base.regular_files import arrays_in

FILE = "predictions.npz"
IMAGES, MODEL, TWIN = "images.json", "model.json", "twin"

Rows = NDArray[np.int64]
Confidence = NDArray[np.float32]


@dataclass(frozen=True)
class Said:
    """A model's predicted class and its confidence, for each image."""

    classes: Rows
    confidence: Confidence

    @classmethod
    def of(cls, probabilities: NDArray[np.floating]) -> Self:
        """[n, k]"""
        return cls(probabilities.argmax(1).astype(np.int64), probabilities.max(1).astype(np.float32))

    def of_rows(self, rows: Rows) -> "Said":
        return Said(self.classes[rows], self.confidence[rows])


@dataclass(frozen=True)
class Target:
    """The images by their names (`files`: paths; else "#index"), and what model and twin say of them."""

    names: tuple[str, ...]
    files: bool
    said: Said
    twin: Said | None
    classes: tuple[str, ...]
    model: str  # its checksum
    identity: str  # changes with the list of images, not with the model
    rows: Rows  # in images.json
    white: int = 0  # of 16-bit files

    def __len__(self) -> int:
        return len(self.names)

    @property
    def differs(self) -> NDArray[np.bool_]:
        """Where model and twin say different classes."""
        other = self.said if self.twin is None else self.twin
        found: NDArray[np.bool_] = self.said.classes != other.classes
        return found

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Of a run's folder."""
        model = _model(folder)
        again = "run the same `adamatch fit` command again, which adds what is missing"
        try:
            arrays = arrays_in(read_checked(folder / FILE))
            images = read_sealed(folder / IMAGES)["target"]
            files, count = list(images["files"]), len(arrays["predicted"])
            if files and len(files) != count:
                raise ValueError("they are of other images than images.json")
            said = Said(arrays["predicted"].astype(np.int64), arrays["confidence"].astype(np.float32))
            twin = None
            if "twin" in arrays:
                twin = Said(arrays["twin"].astype(np.int64), arrays["twin_confidence"].astype(np.float32))
            # Images whose label was learned from do not measure the model.
            rows = np.flatnonzero(~arrays.get("taught", np.zeros(count, np.bool_)))
            names = [files[row] if files else f"#{row}" for row in rows]
            paths = [os.path.join(images["root"], name) for name in names] if files else names
            identity = hashlib.sha256(json.dumps(names).encode()).hexdigest()
            facts: dict[str, Any] = {
                "files": bool(files),
                "model": model["sha256"],
                "identity": identity,
                "white": images["white"],
            }
            facts |= {"said": said.of_rows(rows), "twin": None if twin is None else twin.of_rows(rows), "rows": rows}
            return cls(tuple(paths), classes=tuple(model["classes"]), **facts)
        except FileNotFoundError as error:
            missing = Path(error.filename or FILE).name
            again += ", without --no-report" if missing == IMAGES else ""
            raise InputError(f"{folder} has no predictions of its target ({missing} is missing): {again}") from None
        except InputError:
            raise
        except Exception as error:  # NumPy and zipfile raise all kinds, where a file is damaged
            why = str(error).partition("\n")[0]
            raise InputError(f"{folder}: predictions of the target are damaged ({why}): {again}") from None


def _model(folder: Path) -> dict[str, Any]:
    try:
        facts = read_sealed(folder / MODEL)
        if facts["classes"] and facts["sha256"]:
            return facts
    except (FileNotFoundError, NotADirectoryError):
        what = "holds no finished run" if folder.is_dir() else "is not a folder"
        raise InputError(f"{folder} {what}: give the folder that `adamatch fit --out` made") from None
    except (ValueError, KeyError) as error:
        if isinstance(error, InputError):
            raise
    raise InputError(f"{folder / MODEL} is damaged: train again, or copy it anew")


def models(folder: Path) -> str:
    """Checksums of the model and of its twin, if there is one."""
    twin = folder / TWIN
    return " ".join(_model(each)["sha256"] for each in (folder, twin) if (each / MODEL).is_file())


def is_current(folder: Path) -> bool:
    """Whether a run's folder has its models' predictions."""
    try:
        return str(arrays_in(read_checked(folder / FILE))["models"]) == models(folder)
    except Exception:  # missing or damaged: they are made anew
        return False


def write(folder: Path, said: Said, twin: Said | None, taught: NDArray[np.bool_] | None = None) -> None:
    """predictions.npz: a few bytes for each image. Those that were `taught` with their label are not asked."""
    arrays: dict[str, NDArray[Any]] = {
        "predicted": said.classes.astype(np.uint16),
        "confidence": said.confidence.astype(np.float16),
    }
    if twin is not None:
        arrays |= {"twin": twin.classes.astype(np.uint16), "twin_confidence": twin.confidence.astype(np.float16)}
    if taught is not None:
        arrays |= {"taught": taught}
    manifest.forget(folder, FILE)
    write_whole(folder / FILE, lambda part: _save(part, models=np.array(models(folder)), **arrays))


def _save(path: Path, **arrays: Any) -> None:
    with path.open("wb") as file:  # NumPy would give the file another name
        np.savez_compressed(file, **arrays)
