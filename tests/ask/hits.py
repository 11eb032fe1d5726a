"""Answers while the disk fails or the process is killed: `python -m ask.hits FOLDER`, with the shim of faults.

Each write, sync and rename of a session is hit in turn, in a fork. What the session was told to be kept must be there.
"""

import ctypes
import errno
import os
import signal
import sys
from pathlib import Path

from ask import made

from adamatch.ask.answers import ANSWERS, CLASS, QUESTIONS, UNSURE, Answer, Book
from adamatch.base import files
from adamatch.base.errors import InputError

TOLD = [Answer(CLASS, "red"), Answer("none"), None, Answer(UNSURE), Answer(CLASS, "blue")]


def session(run: Path, log: int) -> None:
    """Ask for five images and answer; each answer that was kept is told to the log."""
    try:
        with Book.opened(run) as book:
            book.want(5, 0, 0)
            for place, answer in enumerate(TOLD):
                number = 1 if place == 2 else place  # the third takes the second back
                book.answer(number, answer)
                os.write(log, f"{number}={answer and ' '.join(answer)}\n".encode())
    except (InputError, OSError) as error:
        os.write(log, f"error: {error}\n".encode())


def hit(run: Path, out: Path, number: int, how: int) -> list[str]:
    """What a session was told that had its n-th operation hit."""
    log = out / "told"
    log.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        told = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        files.PAUSES = (0.0,) * 3
        below = str(run.resolve()).encode()
        ctypes.CDLL(None).fault_arm(below, str(out / "operations").encode(), ctypes.c_long(number), how)
        session(run, told)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return log.read_text().splitlines()


def main() -> None:
    out = Path(sys.argv[1])
    run, bad = made.run(out / "images", 12), 0
    (out / "operations").unlink(missing_ok=True)
    assert len(hit(run, out, 0, 0)) == len(TOLD)
    operations = (out / "operations").read_text().splitlines()
    for how in (errno.ENOSPC, errno.EIO, 0):
        for number in range(1, len(operations) + 1):
            for name in (QUESTIONS, ANSWERS):
                (run / name).unlink(missing_ok=True)
            told = hit(run, out, number, how)
            kept = dict(line.split("=") for line in told if "=" in line)
            book = Book.read(run)
            found = {str(n): str(a and " ".join(a)) for n, a in enumerate(book.answers())}
            if not how and len(told) == 2:  # it died while it took the second back: either will do
                found["1"] = kept["1"]
            lost = {n: a for n, a in kept.items() if found.get(n) != a}
            if how and operations[number - 1].startswith(f"write /{ANSWERS}"):
                assert any("the answer was not kept" in line for line in told), told  # it is never silent
            after = hit(run, out, 0, 0)  # the same session goes on
            if lost or len(after) != len(TOLD) or any(line.startswith("error") for line in after):
                print("lost", operations[number - 1], how, told, found, after)
                bad += 1
    print(f"{len(operations)} operations, each hit 3 times, {bad} bad")


if __name__ == "__main__":
    main()
