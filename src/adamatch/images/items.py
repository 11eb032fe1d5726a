"""Items of a dataset (torch's, HuggingFace's, or a list): an image and perhaps a label, in pairs or under names."""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import ConcatDataset, IterableDataset

from adamatch.base.errors import InputError
from adamatch.images.arrays import check_indices, from_arrays, one_square
from adamatch.images.decode import Square, read_image
from adamatch.images.labels import some
from adamatch.images.listing import LABEL_HEADERS, PATH_HEADERS
from adamatch.images.store import Pixels, Store

IMAGES = ("image", "img", "picture", "photo", "pixel_values", *PATH_HEADERS)
LABELS = ("label", "labels", *LABEL_HEADERS[1:])


def from_dataset(
    dataset: Any,
    how: Square,
    *,
    classes: Sequence[str] | None = None,
    labelled: bool | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Store:
    """A dataset of (image, label) or of images alone -> a store in memory."""
    count, names = length(dataset), None if labelled is False else class_names(dataset)
    images: list[Pixels] = []
    labels: list[Any] = []
    for pixels, label in squares(dataset, how, labelled=labelled):
        images.append(pixels)
        labels.extend(label)
        if progress:
            progress(len(images), count)
    if labels and len(labels) != len(images):
        raise InputError(f"the dataset labels {len(labels)} of its {len(images)} images: label all of them, or none")
    if names and np.asarray(labels).dtype.kind in "iu":  # indices of these names, even where the names are numbers
        labels = [names[number] for number in check_indices(np.asarray(labels), len(names))]
    return from_arrays(np.stack(images), labels or None, names or classes)


def squares(dataset: Any, how: Square, *, labelled: bool | None) -> Iterator[tuple[Pixels, list[Any]]]:
    """Each image as (size, size, 3), with its label as in `items`."""
    number = -1
    for number, (image, label) in enumerate(items(dataset, labelled=labelled)):
        yield one_square(_opened(image, number, how.white), how, f"image {number} of the dataset"), label
    if number < 0:
        raise InputError("the dataset is empty")


def items(dataset: Any, *, labelled: bool | None) -> Iterator[tuple[Any, list[Any]]]:
    """Each image, as it comes, with its label in a list, which is empty where none is there or wanted.

    An image is Pillow's, an array, a tensor, a path, a file's bytes, or HuggingFace's that is not decoded.
    """
    columns: tuple[str, str | None] | None = None
    for item in _read(dataset):
        if isinstance(item, Mapping):
            columns = columns or columns_of(dataset, item, labelled)
            item = tuple(item[name] for name in columns if name)
        image, *rest = item if isinstance(item, (tuple, list)) else (item,)
        yield image, rest[:1] if labelled is not False else []


def _read(dataset: Any) -> Iterator[Any]:
    """The items; an error of HuggingFace's library gets the item's number, one of the user's code keeps its trace."""
    number = 0
    try:
        if length(dataset) and not isinstance(dataset, IterableDataset):
            for number in range(length(dataset)):
                yield dataset[number]
        else:
            for item in dataset:
                yield item
                number += 1
    except Exception as error:
        if isinstance(error, InputError) or not is_hub(dataset):
            raise
        raise InputError(f"image {number} of the dataset cannot be read ({error})") from None


def _opened(image: Any, number: int, white: int) -> Any:
    """Files are read; what is an image already stays as it is."""
    image, where = encoded(image), f"image {number} of the dataset"
    if image is None:
        raise InputError(f"{where} is missing")
    if isinstance(image, bytes):
        return read_image(image, where, white=white)
    return read_image(image, white=white) if isinstance(image, (str, Path)) else image


def encoded(image: Any) -> Any:
    """The bytes or the path of HuggingFace's images that are not decoded; all else as it is."""
    return image.get("bytes") or image.get("path") if isinstance(image, Mapping) else image


def is_hub(source: Any) -> bool:
    """A dataset of HuggingFace's library `datasets`, of any kind."""
    return any(kind.__module__.split(".")[0] == "datasets" for kind in type(source).__mro__)


def refuse(dataset: Any) -> None:
    """What holds no images, batches of them, or several datasets."""
    if not (hasattr(dataset, "__getitem__") or hasattr(dataset, "__iter__")):
        kind = type(dataset).__name__
        raise InputError(f"cannot read images from {kind}: give a folder, CSV file, array or dataset")
    if isinstance(dataset, Mapping):
        names, kind = ", ".join(map(str, dataset)) or "nothing", type(dataset).__name__
        remedy = "give one of them (or a dict of folders, or of a list of images for each class)"
        raise InputError(f"the {kind} holds {names}: {remedy}")


def length(dataset: Any) -> int:
    """How many items it has, 0 where only going through it tells."""
    return len(dataset) if hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__") else 0


def sample(dataset: Any, most: int) -> list[Any]:
    """A few images, as they come, of a dataset that can be asked for any of them; none of all else."""
    count = 0 if hasattr(dataset, "shape") and not is_hub(dataset) else length(dataset)
    if not count or isinstance(dataset, (tuple, Mapping, IterableDataset)):
        return []
    chosen = random.Random(0).sample(range(count), min(most, count))
    return [image for image, _ in items([dataset[number] for number in chosen], labelled=False)]


def sides(dataset: Any, most: int = 20) -> list[int]:
    """The short sides of a few images of a dataset that can be asked for any of them."""
    images = [_opened(image, number, 0) for number, image in enumerate(sample(dataset, most))]
    return [min(image.size if isinstance(image, Image.Image) else sorted(image.shape)[-2:]) for image in images]


def columns_of(dataset: Any, item: Mapping[str, Any], labelled: bool | None) -> tuple[str, str | None]:
    """The names of the image and the label: by the types of a HuggingFace dataset's columns, else by their names."""
    features, listed = getattr(dataset, "features", None) or {}, ", ".join(item)
    images = [name for name in item if type(features.get(name)).__name__ == "Image"]
    images = [name for name in IMAGES if name in images] or images or [name for name in IMAGES if name in item]
    if not images:
        raise InputError(f"the dataset has no column of images (it has {listed}): call it `image`")
    if labelled is False:
        return images[0], None
    labels = _label_columns(item, features)
    if len(labels) > 1:
        raise InputError(f"the dataset has several kinds of labels ({', '.join(labels)}): call the right one `label`")
    if labelled and not labels:
        raise InputError(f"the dataset has no column of labels (it has {listed}): call it `label`")
    return images[0], labels[0] if labels else None


def _label_columns(columns: Iterable[str], features: Mapping[str, Any]) -> list[str]:
    """The column that is called as labels are, else all whose features have names of classes."""
    called = [name for name in LABELS if name in columns]
    return called[:1] or [name for name in columns if hasattr(features.get(name), "names")]


def class_names(dataset: Any) -> list[str] | None:
    """The dataset's names of classes, or those of the datasets that it is a part of or put together from."""
    if is_hub(dataset):
        features = getattr(dataset, "features", None) or {}
        labels = _label_columns(features, features)
        names = getattr(features[labels[0]], "names", None) if len(labels) == 1 else None
    else:
        while getattr(dataset, "classes", None) is None and hasattr(dataset, "dataset"):  # Subset
            dataset = dataset.dataset
        names = getattr(dataset, "classes", None)
        if names is None and isinstance(dataset, ConcatDataset):
            names = _names_of_all(dataset)
    return [str(name) for name in names] if isinstance(names, (list, tuple)) else None


def _names_of_all(dataset: ConcatDataset[Any]) -> list[str] | None:
    """None where some of them has no names: then numbers are all that is known."""
    found = [class_names(each) for each in dataset.datasets]
    known = [names for names in found if names is not None]
    for other in known:
        if other != known[0]:
            raise InputError(
                f"the datasets put together name their classes differently ({some(known[0])}; {some(other)}): "
                "let each item's label be the name of its class"
            )
    return known[0] if len(known) == len(found) else None
