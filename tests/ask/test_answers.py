"""Questions and answers on the disk: kills, faults, and what else may happen to them."""

import csv
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ask import made
from ask.client import Client
from faults import runner

from adamatch.ask import estimate
from adamatch.ask.answers import ANSWERS, CLASS, NONE, QUESTIONS, UNSURE, Answer, Book, read_questions, write_questions
from adamatch.ask.server import Desk, Server
from adamatch.base.errors import InputError

linux = pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return made.run(tmp_path)


def answered(run: Path, number: int = 30) -> Book:
    """By the truth, but one of no class and one that cannot be told."""
    with Book.opened(run) as book:
        book.want(number, 0, 0)
        for place, question in enumerate(book.questions):
            answer = Answer(CLASS, made.truth(question.name))
            book.answer(place, Answer(NONE) if place == 3 else Answer(UNSURE) if place == 5 else answer)
        return book


@pytest.mark.posix
@linux
def test_no_answer_is_lost_where_a_write_a_sync_or_a_rename_fails_or_kills(tmp_path: Path) -> None:
    library = runner.build()
    try:
        words = [sys.executable, "-m", "ask.hits", str(tmp_path)]
        roots = [str(Path(__file__).parents[1]), *sys.path]
        environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(roots)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(library.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 bad" in done.stdout
    assert int(done.stdout.split()[0]) > 12


@pytest.mark.posix
def test_fifty_kills_lose_no_answer(run: Path) -> None:
    rng, expected, late = np.random.default_rng(0), dict[int, int](), dict[int, int]()
    with Book.opened(run) as book:
        book.want(60, 0, 0)
        names = [question.name for question in book.questions]
    for kill in range(50):
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            with Book.opened(run) as book:
                server = Server(Desk(book))
                os.write(theirs, f"{server.address}\n".encode())
                server.serve_forever()
        os.close(theirs)
        with os.fdopen(ours) as told:
            client = Client(told.readline().strip())
        state = client.state()
        given = {n: q["answer"]["label"] for n, q in enumerate(state["questions"]) if q["answer"]}
        assert expected.items() <= given.items(), f"kill {kill}"
        assert given.items() <= (expected | late).items()
        expected = given
        number, label = kill, int(rng.integers(3))
        client.post("/answer", {"question": number, "kind": "class", "label": label})
        expected[number] = label
        late = {kill + 1: int(rng.integers(3))}  # is under way while the process dies: kept, or not
        client.send("/answer", {"question": kill + 1, "kind": "class", "label": late[kill + 1]})
        time.sleep(rng.uniform(0, 0.003))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    book = Book.read(run)
    assert [q.name for q in book.questions] == names
    for number, label in expected.items():
        assert book.answers()[number] == Answer(CLASS, made.CLASSES[label])


def test_the_file_is_the_owners_alone_and_says_all(run: Path) -> None:
    book = answered(run)
    path = run / ANSWERS
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [question.name for question in book.questions]
    assert [row["kind"] for row in rows[:6]] == ["class", "class", "class", "none", "class", "unsure"]
    assert all(len(row["sha256"]) == 64 and row["probability"] == "0.5" and row["draw"] == "1" for row in rows)


def test_the_last_answer_counts_and_what_was_cut_off_does_not(run: Path) -> None:
    book = answered(run)
    path = run / ANSWERS
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[1][:-30])  # a kill in the middle of a row
    with Book.opened(run) as again:
        assert again.given == book.given
        again.answer(0, Answer(CLASS, "green"))
        again.answer(1, None)
    assert Book.read(run).answers()[:3] == [Answer(CLASS, "green"), None, book.answers()[2]]


def test_two_at_once_are_refused_in_one_line(run: Path) -> None:
    with Book.opened(run), pytest.raises(InputError, match="is being asked already"), Book.opened(run):
        pass


def test_more_adds_to_what_is_there(run: Path) -> None:
    first = answered(run, 20)
    with Book.opened(run) as book:
        book.want(20, 15, 7)
        assert book.open == 15
        assert [each.draw for each in book.questions] == [1] * 20 + [2] * 15
        assert [each.probability for each in book.questions] == pytest.approx([20 / 60] * 20 + [35 / 60] * 15)
        assert len({each.row for each in book.questions}) == 35
        assert book.questions[:20] == first.questions
        with pytest.raises(InputError, match="answer them first"):
            book.want(20, 15, 7)
        book.draw(100)
        assert len(book.questions) == 60  # all there are
        for number, question in enumerate(book.questions):
            book.answer(number, Answer(CLASS, made.truth(question.name)))
    found = estimate.summary(run)
    assert found is not None
    assert found.accuracy is not None
    labels = np.arange(60) % 3
    exact = 100 * float((book.target.said.classes == labels).mean())
    assert (found.accuracy.low, found.accuracy.value, found.accuracy.high) == pytest.approx((exact,) * 3, abs=1e-3)
    assert found.gain is not None
    assert found.twin is not None
    assert found.gain.low == pytest.approx(exact - found.twin.value, abs=1e-3)
    assert found.gain.high == pytest.approx(exact - found.twin.value, abs=1e-3)


def test_an_answer_belongs_to_the_image_as_it_was(run: Path) -> None:
    book = answered(run)
    changed, gone = Path(book.questions[0].name), Path(book.questions[1].name)
    changed.write_bytes(Path(book.questions[2].name).read_bytes())
    gone.unlink()
    found = estimate.summary(run)
    assert found is not None
    assert found.answered == 28
    assert any("Changed or gone since the draw, and not counted: 2 images" in line for line in found.lines)
    assert len((run / ANSWERS).read_text().splitlines()) == 31  # they are kept


def test_another_model_keeps_the_answers_and_another_list_of_images_draws_anew(run: Path, tmp_path: Path) -> None:
    book = answered(run)
    before = estimate.summarise(book)
    made.around([tmp_path / "target" / f"{n:03}.png" for n in range(60)], run, made.CLASSES, 0.6, 0.4)
    after = estimate.summary(run)
    assert after is not None
    assert after.answered == 30
    assert after.accuracy != before.accuracy
    (tmp_path / "target" / "059.png").unlink()
    made.around([tmp_path / "target" / f"{n:03}.png" for n in range(59)], run, made.CLASSES, 0.6, 0.4)
    with Book.opened(run) as other:
        assert (other.questions, other.earlier) == ([], 1)
        other.want(30, 0, 1)
        known = [answer for answer in other.answers() if answer]
        assert 5 < len(known) < 30  # images that were answered before need no second answer
        for question, answer in zip(other.questions, other.answers(), strict=True):
            assert answer is None or answer.kind != CLASS or answer.label == made.truth(question.name)


def test_a_table_takes_the_place_of_the_page(run: Path, tmp_path: Path) -> None:
    table = tmp_path / "questions.csv"
    with Book.opened(run) as book:
        book.want(30, 0, 0)
        write_questions(book, table)
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["answer"] for row in rows} == {""}
        for place, row in enumerate(rows):
            row["answer"] = {0: "None of these", 1: "?", 2: ""}.get(place, f" {made.truth(row['path']).upper()} ")
        _write(table, rows)
        assert book.answer_all(read_questions(book, table)) == 29
        assert book.answers()[:3] == [Answer(NONE), Answer(UNSURE), None]
        assert book.answer_all(read_questions(book, table)) == 0
        for change, said in (
            ({"answer": "purple"}, "line 4: .*purple"),
            ({"path": "elsewhere.png"}, "line 4: .*was not asked"),
            (dict(rows[3]) | {"answer": "green" if rows[3]["answer"].strip() != "GREEN" else "red"}, "two answers"),
        ):
            wrong = [*rows[:2], rows[3] | change, *rows[3:]]
            _write(table, wrong)
            before = (run / ANSWERS).read_bytes()
            with pytest.raises(InputError, match=said):
                book.answer_all(read_questions(book, table))
            assert (run / ANSWERS).read_bytes() == before


def _write(table: Path, rows: list[dict[str, str]]) -> None:
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("path", "guess", "answer"))
        writer.writeheader()
        writer.writerows(rows)


def test_what_is_wrong_with_a_folder_is_one_line(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a folder"):
        Book.read(tmp_path / "nothing")
    with pytest.raises(InputError, match="holds no finished run"):
        Book.read(tmp_path / "target")
    (run / QUESTIONS).write_text("{}")
    with pytest.raises(InputError, match="move it away"):
        Book.read(run)
    images = (run / "images.json").rename(run / "elsewhere.json")
    with pytest.raises(InputError, match=r"images\.json is missing.*adds what is missing, without --no-report"):
        Book.read(run)
    images.rename(run / "images.json")
    (run / "predictions.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match="predictions of the target are damaged"):
        Book.read(run)
    (run / "predictions.npz").unlink()
    with pytest.raises(InputError, match="no predictions of its target"):
        Book.read(run)
    assert not (run / ".ask.lock").exists()


def test_a_target_of_twenty_images_is_asked_in_whole(tmp_path: Path) -> None:
    run = made.run(tmp_path, 20)
    with Book.opened(run) as book:
        book.want(30, 0, 0)
        assert len(book.questions) == 20
        assert {question.probability for question in book.questions} == {1.0}
