"""What the items of a dataset hold: an image and perhaps a label, in pairs or under names (HuggingFace's datasets)."""

import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

from adamatch.base.errors import InputError
from adamatch.images.decode import read_image

IMAGES = (
    "image",
    "img",
    "picture",
    "photo",
    "pixel_values",
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "image_path",
)
LABELS = ("label", "labels", "class", "class_name", "category", "target")


class Columns(NamedTuple):
    """Under which names items hold their image and their label (None: they have none)."""

    image: str
    label: str | None


def is_hub(source: Any) -> bool:
    """A dataset of HuggingFace's library `datasets`, of any kind."""
    return any(kind.__module__.split(".")[0] == "datasets" for kind in type(source).__mro__)


def refuse(dataset: Any) -> None:
    """What looks like a dataset and is several, or batches of one."""
    if isinstance(dataset, DataLoader):
        raise InputError("a DataLoader was given: give its dataset (loader.dataset)")
    if isinstance(dataset, Mapping):
        what = "a DatasetDict" if is_hub(dataset) else "a dictionary"
        names = ", ".join(map(str, dataset)) or "nothing"
        raise InputError(f"{what} was given, which holds {names}: give one of them (or a dictionary of folders)")


def items(dataset: Any, *, labelled: bool | None, white: int | None = 0) -> Iterator[tuple[Any, list[Any]]]:
    """Each image (Pillow's, an array, a tensor) with its label in a list, which is empty where none is there or wanted.

    `white` is that of files of 16 bits, as in `read_image`; None leaves images that are given by their files as they are.
    """
    count = length(dataset)
    columns: Columns | None = None
    number = -1
    for number, read in enumerate(_readers(dataset, count)):
        try:
            item = read()
        except InputError:
            raise
        except Exception as error:
            if not is_hub(dataset):
                raise  # somebody's own code: the trace is theirs to see
            raise InputError(f"image {number} of the dataset cannot be read ({error})") from None
        if isinstance(item, Mapping):
            columns = columns or columns_of(dataset, item, labelled)
            item = (item[columns.image], *([item[columns.label]] if columns.label else []))
        image, *rest = item if isinstance(item, (tuple, list)) else (item,)
        yield image if white is None else _opened(image, number, white), rest[:1] if labelled is not False else []


def sides(dataset: Any, sample: int = 20) -> int | None:
    """The median short side of a few images of a dataset that can be asked for any of them; None for all else."""
    images = [_opened(image, number, 0) for number, image in enumerate(images_of(dataset, sample))]
    shapes = [image.size if isinstance(image, Image.Image) else sorted(image.shape)[-2:] for image in images]
    return int(statistics.median(min(shape) for shape in shapes)) if shapes else None


def images_of(dataset: Any, sample: int) -> list[Any]:
    """A few images, as they are given, of a dataset that can be asked for any of them; none of all else."""
    count = 0 if hasattr(dataset, "shape") and not is_hub(dataset) else length(dataset)
    if not count or isinstance(dataset, (tuple, Mapping, IterableDataset)):
        return []
    chosen = random.Random(0).sample(range(count), min(sample, count))
    return [image for image, _ in items([dataset[number] for number in chosen], labelled=False, white=None)]


def length(dataset: Any) -> int:
    """How many items it has, 0 where only going through it tells."""
    return len(dataset) if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") else 0


def columns_of(dataset: Any, item: Mapping[str, Any], labelled: bool | None) -> Columns:
    """By the types that a HuggingFace dataset gives its columns, else by their names."""
    kinds = {name: type(feature).__name__ for name, feature in (getattr(dataset, "features", None) or {}).items()}
    listed = ", ".join(item)
    images = [name for name in item if kinds.get(name) == "Image"]
    images = [name for name in IMAGES if name in images] or images or [name for name in IMAGES if name in item]
    if not images:
        raise InputError(f"the dataset has no column of images (it has {listed}): call it `image`")
    if labelled is False:
        return Columns(images[0], None)
    labels = [name for name in LABELS if name in item] or [name for name in item if kinds.get(name) == "ClassLabel"]
    if len(labels) > 1 and labels[0] not in LABELS:
        raise InputError(
            f"the dataset has several kinds of labels ({', '.join(labels)}): rename the one to learn to `label`"
        )
    if labelled and not labels:
        raise InputError(f"the dataset has no column of labels (it has {listed}): call it `label`")
    return Columns(images[0], labels[0] if labels else None)


def class_names(dataset: Any) -> list[str] | None:
    """The dataset's names of classes, or those of the dataset that it is a part of (Subset)."""
    if is_hub(dataset):
        features = getattr(dataset, "features", None) or {}
        label = next((name for name in LABELS if name in features), None)
        labels = [label] if label else [name for name, feature in features.items() if hasattr(feature, "names")]
        named = getattr(features[labels[0]], "names", None) if len(labels) == 1 else None
    else:
        while getattr(dataset, "classes", None) is None and hasattr(dataset, "dataset"):
            dataset = dataset.dataset
        named = getattr(dataset, "classes", None)
    return None if named is None else [str(name) for name in named]


def _readers(dataset: Any, count: int) -> Iterator[Callable[[], Any]]:
    """One call for each item, which may fail."""
    if count and not isinstance(dataset, IterableDataset):
        yield from (lambda number=number: dataset[number] for number in range(count))
    else:
        yield from (lambda item=item: item for item in dataset)


def _opened(image: Any, number: int, white: int) -> Any:
    if image is None:
        raise InputError(f"image {number} of the dataset is missing")
    if isinstance(image, Mapping):  # HuggingFace's, not decoded
        image = image.get("bytes") or image.get("path")
    if isinstance(image, bytes):
        return read_image(image, f"image {number} of the dataset", white=white)
    return read_image(image, white=white) if isinstance(image, (str, Path)) else image
