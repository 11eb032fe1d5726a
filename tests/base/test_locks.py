"""Locks on files: one has it, others do not wait for it, and asking disturbs nobody."""

from pathlib import Path
from typing import IO

import pytest

from adamatch.base import locks


def test_one_takes_it_and_the_next_after_its_release(tmp_path: Path) -> None:
    first = locks.take(tmp_path / ".lock")
    assert first is not None
    assert locks.take(tmp_path / ".lock") is None
    first.release()
    again = locks.take(tmp_path / ".lock")
    assert again is not None
    again.release()


def test_an_open_file_is_locked_by_one_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    assert not locks.is_locked(path)  # nor is it made
    assert not path.exists()
    with path.open("w") as first, path.open() as second:
        assert not locks.is_locked(path)
        assert locks.lock(first)
        assert locks.is_locked(path)
        assert not locks.lock(second)
    assert not locks.is_locked(path)


def test_two_may_ask_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them would be told that it is locked, if the question itself were a lock against others."""
    path = tmp_path / "lease"
    path.write_text("")
    ask, answers, others = locks._flock, list[bool](), iter([1])

    def while_another_asks(file: IO[str], kind: int) -> bool:
        free = ask(file, kind)
        if next(others, None):
            answers.append(locks.is_locked(path))
        return free

    monkeypatch.setattr(locks, "_flock", while_another_asks)
    assert not locks.is_locked(path)
    assert answers == [False]
