"""A disk that forgets: what a power loss may leave of a folder, at every call that changes it or waits for it."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from safetensors.torch import save_file

from adamatch.train import checkpoint

Tree = dict[str, bytes | None]  # by path below the root; None for a folder
Inode = tuple[int, int]  # its number, and how often that was given away again
# What is left: only what was synced (and one or another name that was not); all names, but of contents only what was
# synced, or half of the rest too; what was removed is gone, and what was made not there; everything, as by a kill.
LEFT = ("synced", "names", "halves", "removed", "everything")


class Disk:
    """Knows what is on the disk for certain below `root`. `trees` are what power losses would leave of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.reused: Counter[int] = Counter()
        self.contents: dict[Inode, bytes] = {}
        self.names: dict[Inode, dict[str, Inode]] = {}
        self.kinds: dict[Inode, bool] = {}  # whether it is a folder
        self.trees: dict[frozenset[tuple[str, bytes | None]], str] = {}  # each once, with the moment that it is of
        self.calls: Counter[str] = Counter()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within it, the power may fail before and after each call."""
        self._sync_all()
        with (
            mock.patch.object(os, "fsync", self._wrapped(os.fsync, self._synced)),
            mock.patch.object(os, "replace", self._wrapped(os.replace, self._gone)),
            mock.patch.object(os, "unlink", self._wrapped(os.unlink, self._gone)),
            mock.patch.object(os, "rmdir", self._wrapped(os.rmdir, self._gone)),
            mock.patch.object(os, "mkdir", self._wrapped(os.mkdir)),
            mock.patch.object(checkpoint, "save_file", self._wrapped(save_file)),
        ):
            yield
        self.look("the end")

    def look(self, moment: str) -> None:
        trees = {left: self._tree(left) for left in LEFT}
        for name, content in trees["names"].items():
            if trees["synced"].get(name, b"") != content:
                above = {str(each): None for each in Path(name).parents if str(each) != "."}
                trees[f"synced and {name}"] = trees["synced"] | above | {name: content}
        for left, tree in trees.items():
            self.trees.setdefault(frozenset(tree.items()), f"{left}, {moment}")

    def _wrapped(self, function: Callable[..., Any], note: Callable[..., None] | None = None) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            name = f"{function.__name__} {next(self._count(function.__name__))}"
            self.look(f"before {name}")
            before = self._inode(args[-1], **kwargs) if note == self._gone else None
            result = function(*args, **kwargs)
            if note is not None:
                note(before, *args)
            self.look(f"after {name}")
            return result

        return call

    def _count(self, name: str) -> Iterator[int]:
        self.calls[name] += 1
        yield self.calls[name]

    def _inode(self, path: Any, dir_fd: int | None = None, **_: Any) -> int | None:
        try:
            return os.stat(path, dir_fd=dir_fd, follow_symlinks=False).st_ino
        except FileNotFoundError:
            return None

    def _gone(self, inode: int | None, *_: Any) -> None:
        if inode is not None:  # its number may be another file's from now on
            self.reused[inode] += 1

    def _synced(self, _: None, opened: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))
        if path == self.root or self.root in path.parents:
            self._note(path)

    def _sync_all(self) -> None:
        for path in (self.root, *self.root.rglob("*")):
            self._note(path)

    def _key(self, path: Path) -> Inode:
        number = path.lstat().st_ino
        return number, self.reused[number]

    def _note(self, path: Path) -> None:
        key = self._key(path)
        if path.is_dir():
            self.names[key] = {entry.name: self._key(entry) for entry in path.iterdir()}
            self.kinds |= {self._key(entry): entry.is_dir() for entry in path.iterdir()}
        else:
            self.contents[key] = path.read_bytes()

    def _tree(self, left: str) -> Tree:
        tree: Tree = {}
        if left in ("synced", "removed"):
            self._collect(self._key(self.root), self.root, left == "removed", tree)
            return {name: content for name, content in tree.items() if name}
        for path in self.root.rglob("*"):
            name = str(path.relative_to(self.root))
            if path.is_dir():
                tree[name] = None
                continue
            now = path.read_bytes()
            synced = self.contents.get(self._key(path), b"")
            more = {"names": 0, "halves": (len(now) - len(synced)) // 2, "everything": len(now)}[left]
            tree[name] = now[: len(synced) + more] if now.startswith(synced) else now[:more] or synced
        return tree

    def _collect(self, folder: Inode, path: Path, removed: bool, tree: Tree) -> None:
        tree[str(path.relative_to(self.root)) if path != self.root else ""] = None
        for name, inode in self.names.get(folder, {}).items():
            inner = path / name
            if removed and not inner.exists():
                continue
            if self.kinds[inode]:
                self._collect(inode, inner, removed, tree)
            else:
                tree[str(inner.relative_to(self.root))] = self.contents.get(inode, b"")


def write(tree: frozenset[tuple[str, bytes | None]], root: Path) -> Path:
    """Make a tree, somewhere else."""
    root.mkdir(parents=True)
    for name, content in sorted(tree):
        if content is None:
            (root / name).mkdir(parents=True, exist_ok=True)
    for name, content in tree:
        if content is not None:
            (root / name).write_bytes(content)
    return root
