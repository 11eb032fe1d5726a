"""A store appears whole or not at all, and damage to it is named."""

import json
from pathlib import Path

import numpy as np
import pytest
from damage import STRANGE, flip

from adamatch.base.errors import InputError
from adamatch.base.files import checksum, sealed, unsealed
from adamatch.images import store
from adamatch.images.store import Store, Writer

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 2, 2, 0])


def made(path: Path, value: int | None = None) -> Store:
    writer = Writer(path, count=6, size=4)
    writer.images[:] = IMAGES if value is None else value
    return writer.commit(LABELS, ["a", "b", "c"], {"origin": "here"})


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "store"
    store = made(path)
    assert np.array_equal(store.images, IMAGES)
    assert store.labels is not None
    assert np.array_equal(store.labels, LABELS)
    assert (len(store), store.size, store.classes) == (6, 4, ("a", "b", "c"))
    assert store.info == {"origin": "here"}
    assert isinstance(store.images, np.memmap), "opened without reading the whole"
    with pytest.raises(ValueError, match="read-only"):
        store.images[0] = 0
    head = json.loads((path / "store.json").read_text())
    assert head["sha256"] == {name: checksum(path / name) for name in ("images.npy", "labels.npy")}
    assert sorted(file.name for file in path.iterdir()) == ["images.npy", "labels.npy", "store.json"]


def test_a_store_without_labels_has_no_file_for_them(tmp_path: Path) -> None:
    assert Writer(tmp_path / "store", count=2, size=4).commit(None, [], {}).labels is None
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["images.npy", "store.json"]


def test_a_store_is_replaced_once_the_new_one_is_complete(tmp_path: Path) -> None:
    made(tmp_path / "store")
    writer = Writer(tmp_path / "store", count=6, size=4)  # its process ends here
    writer.images[:] = 7
    assert np.array_equal(Store.open(tmp_path / "store", whole=True).images, IMAGES)
    assert (made(tmp_path / "store", 9).images == 9).all()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone is not a store"):
        Store.open(tmp_path / "gone")
    made(path := tmp_path / "store")
    text = (path / "store.json").read_text()
    head = unsealed(json.loads(text))
    no_checksum, version = json.dumps(head), json.dumps(sealed(head | {"version": 99}))
    for damaged in (text[: len(text) // 2], text.replace('"origin"', '"source"'), no_checksum, version, *STRANGE):
        (path / "store.json").write_text(damaged)
        with pytest.raises(InputError, match=r"store is damaged .*: delete it and prepare it again") as error:
            Store.open(path)
        assert "\n" not in str(error.value)
    (path / "store.json").write_text(text)
    images = (path / "images.npy").read_bytes()
    for content in (images[:-50], images[:20], b"X" + images[1:], b""):
        (path / "images.npy").write_bytes(content)
        with pytest.raises(InputError, match=r"store is damaged .*: delete it and prepare it again"):
            Store.open(path)
    (path / "images.npy").write_bytes(images)
    (path / "labels.npy").unlink()
    with pytest.raises(InputError, match="store is damaged"):
        Store.open(path)


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "store.json"])
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, name: str) -> None:
    made(tmp_path / "store")
    path = tmp_path / "store" / name
    whole, noticed = path.read_bytes(), 0
    for seed in range(40):
        path.write_bytes(whole)
        flip(path, seed)
        try:
            store = Store.open(tmp_path / "store", whole=True)
        except InputError:
            noticed += 1
            continue
        assert name == "store.json"  # white space, or the checksum's own name
        assert np.array_equal(store.images, IMAGES)
        assert store.classes == ("a", "b", "c")
    assert noticed == 40 or (name == "store.json" and noticed > 25)


def test_images_are_read_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "store")
    Store.open(tmp_path / "store", whole=True)
    monkeypatch.setattr(
        store, "checksum", lambda path: checksum(path) if path.name == "labels.npy" else pytest.fail("read")
    )
    Store.open(tmp_path / "store", whole=True)
