"""A store appears whole or not at all, is resumed where it stopped, and damage to it is named."""

import json
import os
import shutil
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from damage import STRANGE, flip
from hypothesis import given, settings
from hypothesis import strategies as st

from adamatch.base.errors import InputError
from adamatch.base.files import checksum, sealed, unsealed
from adamatch.images import store
from adamatch.images.store import Store, Writer

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
LABELS = np.array([2, 0, 1, 2, 2, 0])


def writer(path: Path, plan: str = "plan", count: int = 6) -> Writer:
    return Writer(path, count=count, size=4, classes=["a", "b", "c"], info={"origin": "here"}, plan=plan)


def fill(target: Writer, rows: slice = slice(None)) -> None:
    assert target.labels is not None
    target.images[rows] = IMAGES[rows]
    target.labels[rows] = LABELS[rows]
    target.done[rows] = 1


def made(path: Path) -> Path:
    target = writer(path)
    fill(target)
    target.commit()
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    store_path = tmp_path / "deep" / "store"
    target = writer(store_path)
    fill(target)
    store = target.commit()
    assert np.array_equal(store.images, IMAGES)
    assert store.labels is not None
    assert np.array_equal(store.labels, LABELS)
    assert (len(store), store.size, store.classes) == (6, 4, ("a", "b", "c"))
    assert store.info == {"origin": "here"}
    assert isinstance(store.images, np.memmap), "opened without reading the whole"
    with pytest.raises(ValueError, match="read-only"):
        store.images[0] = 0
    head = json.loads((store_path / "store.json").read_text())
    assert head["sha256"] == {name: checksum(store_path / name) for name in ("images.npy", "labels.npy")}


def test_a_store_without_labels_has_no_file_for_them(tmp_path: Path) -> None:
    target = Writer(tmp_path / "store", count=2, size=4, classes=[], labelled=False)
    target.done[:] = 1
    assert target.commit().labels is None
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["images.npy", "store.json"]


def test_it_appears_only_when_complete(tmp_path: Path) -> None:
    target = writer(tmp_path / "store")
    fill(target, slice(0, 5))
    assert not (tmp_path / "store").exists()
    with pytest.raises(InputError, match="not complete: 1 images are missing"):
        target.commit()
    assert not (tmp_path / "store").exists()
    fill(target)
    target.commit()
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert sorted(path.name for path in (tmp_path / "store").iterdir()) == ["images.npy", "labels.npy", "store.json"]


def test_a_new_store_leaves_the_old_one_until_it_is_complete(tmp_path: Path) -> None:
    made(tmp_path / "store")
    before = checksum(tmp_path / "store" / "images.npy")
    target = writer(tmp_path / "store", plan="new")
    target.images[0], target.done[0] = 7, 1
    del target
    assert checksum(tmp_path / "store" / "images.npy") == before
    again = writer(tmp_path / "store", plan="new")
    assert again.done.tolist() == [1, 0, 0, 0, 0, 0]
    assert (again.images[0] == 7).all()
    again.images[:], again.done[:] = 9, 1
    assert (again.commit().images == 9).all(), "a finished store is replaced"


@settings(max_examples=15)
@given(stops=st.lists(st.integers(0, 6), max_size=4))
def test_it_goes_on_wherever_it_stopped(tmp_path_factory: pytest.TempPathFactory, stops: list[int]) -> None:
    folder = tmp_path_factory.mktemp("resume")
    reached = 0
    for stop in stops:
        target = writer(folder / "store")
        assert target.done.sum() == reached
        fill(target, slice(0, max(stop, reached)))
        reached = max(stop, reached)
        del target
    last = writer(folder / "store")
    fill(last, slice(reached, 6))
    store = last.commit()
    assert np.array_equal(store.images, IMAGES)
    assert np.array_equal(store.labels, LABELS)  # type: ignore[arg-type]


def test_another_plan_starts_again(tmp_path: Path) -> None:
    fill(writer(tmp_path / "store"))
    assert writer(tmp_path / "store").done.all()
    assert not writer(tmp_path / "store", plan="another").done.any()
    fill(writer(tmp_path / "store", plan="another"))
    assert not writer(tmp_path / "store", plan="another", count=7).done.any()
    fill(writer(tmp_path / "store"))
    (tmp_path / ".store.partial" / "plan.json").unlink()  # written last: without it the arrays may be incomplete
    assert not writer(tmp_path / "store").done.any()


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone is not a store: it has no store\.json"):
        Store.open(tmp_path / "gone")
    path = made(tmp_path / "store")
    text = (path / "store.json").read_text()
    head = unsealed(json.loads(text))
    for damaged, message in (
        (text[: len(text) // 2], r"store\.json is damaged: delete .*store and prepare it again"),
        (text.replace('"origin"', '"source"'), r"store\.json is damaged"),
        (json.dumps(head), r"store\.json is damaged"),  # without its checksum
        (json.dumps(sealed(head | {"version": 99})), r"written by another version \(99\)"),
        *((strange, r"store\.json is damaged") for strange in STRANGE),
    ):
        (path / "store.json").write_text(damaged)
        with pytest.raises(InputError, match=message) as error:
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


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12 - 2 * 10**9, 2 * 10**9))
    with pytest.raises(InputError, match=r"2\.0 GB free and 6\.1 GB are needed"):
        Writer(tmp_path / "store", count=40_500, size=224, classes=["a"])
    assert not (tmp_path / "store").exists()
    assert list((tmp_path / ".store.partial").iterdir()) == []


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "store.json"])
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path, name: str) -> None:
    path = made(tmp_path / "store") / name
    whole, noticed = path.read_bytes(), 0
    for seed in range(40):
        path.write_bytes(whole)
        flip(path, seed)
        try:
            store = Store.whole(tmp_path / "store")
        except InputError:
            noticed += 1
            continue
        assert name == "store.json"  # white space, or the checksum's own name
        assert np.array_equal(store.images, IMAGES)
        assert store.classes == ("a", "b", "c")
    assert noticed == 40 or (name == "store.json" and noticed > 25)


def test_images_are_read_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "store")
    Store.whole(tmp_path / "store")
    monkeypatch.setattr(
        store, "checksum", lambda path: checksum(path) if path.name == "labels.npy" else pytest.fail("read")
    )
    Store.whole(tmp_path / "store")


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_around_the_last_rename_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str) -> None:
    """Nothing that was decoded is decoded again."""
    for plan in ("plan", "new"):
        target = writer(tmp_path / "store", plan=plan)
        fill(target)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stopping(moment, tmp_path / "store"))
            with pytest.raises(KeyboardInterrupt):
                target.commit()
        if moment == "before":
            again = writer(tmp_path / "store", plan=plan)
            assert again.done.all()
            again.commit()
        assert np.array_equal(Store.whole(tmp_path / "store").images, IMAGES)


def stopping(moment: str, wanted: Path) -> Callable[[Path, Path], None]:
    replace = os.replace

    def stop(old: Path, new: Path) -> None:
        if new != wanted or moment == "after":
            replace(old, new)
        if new == wanted:
            raise KeyboardInterrupt

    return stop
