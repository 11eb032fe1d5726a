"""`adamatch ask` and `model.ask` on runs of `fit`; and what is said."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ask import made
from colours import TINY, arrays
from PIL import Image

import adamatch
from adamatch import cli
from adamatch.ask import answers, estimate, intervals, target
from adamatch.ask.answers import ANSWERS, CLASS, NONE, QUESTIONS, UNSURE, Answer, Book
from adamatch.ask.target import FILE, Target
from adamatch.base import files, manifest
from adamatch.base.errors import InputError
from adamatch.images.store import Store
from adamatch.report import page
from adamatch.verdict import eval_outputs


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of arrays."""
    out = tmp_path_factory.mktemp("fitted") / "run"
    images, labels = arrays(30)
    adamatch.fit(source=(images, labels), target=arrays(25, 1)[0], out=out, **TINY)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr(sys, "argv", ["adamatch", *map(str, words)])
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_fit_keeps_what_model_and_twin_say_of_every_image(run: Path) -> None:
    found = Target.read(run)
    assert found.twin is not None
    for model, said in ((adamatch.load(run), found.said), (adamatch.load(run / "twin"), found.twin)):
        y = model.predict_proba(arrays(25, 1)[0])
        assert said.confidence == pytest.approx(y.max(1), abs=2e-3)
        clear = np.sort(y, 1)[:, -1] - np.sort(y, 1)[:, -2] > 0.01
        assert (said.classes == y.argmax(1))[clear].all()
    assert found.names[:2] == ("#0", "#1")
    assert FILE in files.listed(run)


def test_of_more_images_than_outputs_hold_both_are_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_outputs, "MOST", 10)
    images, labels = arrays(30)
    model = adamatch.fit(source=(images, labels), target=arrays(25, 1)[0], out=tmp_path / "run", **TINY)
    found = Target.read(tmp_path / "run")
    assert found.twin is not None
    assert found.said.confidence == pytest.approx(model.predict(arrays(25, 1)[0]).confidence, abs=1e-3)
    twin = adamatch.load(tmp_path / "run" / "twin").predict(arrays(25, 1)[0])
    assert found.twin.confidence == pytest.approx(twin.confidence, abs=1e-3)


def test_arrays_are_asked_from_python(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, truth = adamatch.load(run), (np.arange(25) % 3).tolist()
    assert model.accuracy is None
    asked = model.ask(10, seed=3)
    assert len(asked) == len(asked.guesses) == 10
    wanted = [truth[int(name.removeprefix("#"))] for name in asked.paths]
    found = asked.answer([*wanted[:8], None, "none of these"])
    assert found is not None
    assert found.n == 9
    assert model.accuracy == found
    hits = sum(guess == str(label) for guess, label in zip(asked.guesses[:8], wanted, strict=False))
    low, high = intervals.count(hits, 10, 25).low, intervals.count(hits + 1, 10, 25).high
    assert (found.value, found.low, found.high) == pytest.approx((100 * hits / 9, 4 * low, 4 * high), abs=1e-3)
    more = model.ask(10, more=5)
    assert len(more) == 5
    assert not {*more.paths} & {*asked.paths}
    assert adamatch.load(run).ask(10).paths == more.paths  # they wait
    with pytest.raises(InputError, match="5 questions and 4 labels"):
        more.answer([1] * 4)
    with pytest.raises(InputError, match="purple"):
        more.answer({more.paths[0]: 1, more.paths[1]: "purple"})
    assert len(model.ask(10)) == 5  # nothing of that was kept
    more.answer(dict.fromkeys(more.paths, 1))
    assert "from 14 answers" in str(asked)
    assert call(monkeypatch, "ask", run) == 2
    assert "was trained on arrays" in capsys.readouterr().err
    assert [*manifest.problems(run)] == []
    with pytest.raises(InputError, match="of no run"):
        adamatch.Model(model.net, model.classes, 8).ask()


def test_answers_outlive_the_run(run: Path) -> None:
    model = adamatch.load(run)
    model.ask(12).answer([1] * 12)
    before = (run / ANSWERS).read_bytes()
    images, labels = arrays(30)
    again: dict[str, Any] = {"source": (images, labels), "target": arrays(25, 1)[0], "out": run}
    assert adamatch.fit(**again, **TINY).accuracy == model.accuracy
    assert adamatch.fit(**again, **TINY | {"seed": 1}, overwrite=True).accuracy is not None
    assert (run / ANSWERS).read_bytes() == before
    assert {QUESTIONS, ANSWERS, FILE} <= files.listed(run).keys()
    assert [*manifest.problems(run)] == []


def test_a_table_and_json_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, table = made.run(tmp_path), tmp_path / "questions.csv"
    assert call(monkeypatch, "ask", run, "--to", table, "--number", 20) == 0
    rows = table.read_text().splitlines()
    table.write_text("\n".join([rows[0], *(row + made.truth(row.split(",")[0]) for row in rows[1:])]))
    capsys.readouterr()
    assert call(monkeypatch, "ask", run, "--from", table, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["asked"], said["answered"]) == (20, 20)
    assert said["accuracy"]["low"] <= said["accuracy"]["value"] <= said["accuracy"]["high"]
    assert said["twin"]["n"] == 20
    assert call(monkeypatch, "ask", run, "--json") == 0
    assert json.loads(capsys.readouterr().out) == said
    assert call(monkeypatch, "ask", run, "--to", table, "--from", table) == 2
    assert call(monkeypatch, "ask", tmp_path / "nothing") == 2
    assert "is not a folder" in capsys.readouterr().err


def _book(tmp_path: Path, answers: dict[str, Answer], **how: Any) -> Book:
    """All images answered: by these for guesses, else by the guess itself."""
    run = made.run(tmp_path, 40, **how)
    with Book.opened(run) as book:
        book.want(40, 0, 0)
        for number, question in enumerate(book.questions):
            guess = book.target.classes[book.target.said.classes[question.row]]
            book.answer(number, answers.get(guess, Answer(CLASS, guess)))
        return book


def test_a_group_with_a_wrong_name_is_told(tmp_path: Path) -> None:
    found = estimate.summarise(_book(tmp_path, {"red": Answer(CLASS, "green")}, wrong=0.0, twin=0.0))
    assert found.lines[0] == "Accuracy: 68 % (95 %: 67 to 68), from 40 answers"
    assert "Wrong names: of 13 images called red, 13 were green" in found.lines
    assert "Both say the same of every image" in found.lines
    assert any("--target-labels" in line for line in found.lines)
    assert not any("--more" in line for line in found.lines)  # there are no more
    assert len(found.mistakes) == 13
    assert (found.shares["red"].high, found.shares["green"].value) == (0, 65)


def test_what_nobody_can_tell_makes_the_range_wider_and_no_class_has_a_share(tmp_path: Path) -> None:
    book = _book(tmp_path / "a", {"red": Answer(UNSURE)}, wrong=0.0, twin=0.4)
    unsure = estimate.summarise(book)
    assert unsure.accuracy is not None
    assert (unsure.accuracy.low, unsure.accuracy.value, unsure.accuracy.high, unsure.accuracy.n) == (67.5, 100, 100, 27)
    assert unsure.gain is not None
    differs = book.target.differs & (book.target.said.classes == 2)
    assert unsure.gain.high - unsure.gain.low == pytest.approx(100 * 2 * differs.sum() / 40)
    none = estimate.summarise(_book(tmp_path / "b", {"red": Answer(NONE)}, wrong=0.0, twin=0.4))
    assert none.of_no_class is not None
    assert none.of_no_class.value == none.of_no_class.high == 32.5
    assert "Of no class: about 32 % of the images (95 %: 32 to 33)" in none.lines
    assert none.gain is not None
    assert none.twin is not None
    assert none.accuracy is not None
    assert none.gain.value == pytest.approx(none.accuracy.value - none.twin.value, abs=1e-3)


def test_nothing_asked_is_nothing_said(tmp_path: Path) -> None:
    run = made.run(tmp_path, twin=None)
    assert estimate.summary(run) is None
    with Book.opened(run) as book:
        book.want(30, 0, 0)
        assert estimate.summarise(book).lines[0].startswith("Accuracy: not known, 30 questions wait for answers")
        book.answer(0, Answer(CLASS, "red"))
        found = estimate.summarise(book)
    assert (found.twin, found.gain) == (None, None)
    assert any(line.startswith("Open: 29 questions") for line in found.lines)


def test_images_whose_label_was_learned_from_are_not_asked(tmp_path: Path) -> None:
    run = made.run(tmp_path)
    whole = Target.read(run)
    with Book.opened(run) as book:
        book.want(20, 0, 0)
        book.answer(0, Answer(CLASS, "red"))
        taught = np.isin(np.arange(60), [question.row for question in book.questions])
    target.write(run, whole.said, whole.twin, taught)
    with Book.opened(run) as book:
        assert (len(book.target), book.questions, book.earlier) == (40, [], 1)
        book.want(40, 0, 0)
        assert {question.name for question in book.questions} == {whole.names[row] for row in np.flatnonzero(~taught)}
        for number, question in enumerate(book.questions):
            book.answer(number, Answer(CLASS, made.truth(question.name)))
        for row, guess, label in estimate.summarise(book).mistakes:
            assert guess == made.CLASSES[whole.said.classes[row]] != label == made.truth(whole.names[row])


def test_few_labels_of_the_target_itself_are_not_asked(tmp_path: Path) -> None:
    images, labels = arrays(60)
    few = (images[:6], labels[:6])
    model = adamatch.fit(
        source=arrays(30, 1), target=images, target_labels=few, out=tmp_path / "run", twin=False, **TINY
    )
    asked = model.ask(60)
    assert [*sorted(asked.paths, key=lambda name: int(name[1:]))] == [f"#{row}" for row in range(6, 60)]
    same = adamatch.fit(source=(images, labels), target=(images, labels), out=tmp_path / "all", twin=False, **TINY)
    assert len(same.ask()) == 6  # those that were held out
    said = Target.read(tmp_path / "run").said
    target.write(tmp_path / "run", said, None, np.ones(len(said.classes), bool))
    with pytest.raises(InputError, match="none is left to ask"):
        model.ask()


def test_names_from_outside_are_text(tmp_path: Path) -> None:
    classes = ("=1+1", "a\nb", 'c, "d"', "none")
    images = tmp_path / "target"
    images.mkdir()
    files = [images / f"{number:03}={chr(10)}.png" for number in range(8)]
    for file in files:
        Image.new("RGB", (8, 8), (len(file.name), 7, hash(file.name) % 255)).save(file)
    run = made.around(files, tmp_path / "run", classes, 0.0, 0.5)
    with Book.opened(run) as book:
        book.want(8, 0, 0)
        for number in range(8):
            book.answer(number, Answer(CLASS, classes[number % 4]))
    assert Book.read(run).answers() == [Answer(CLASS, classes[number % 4]) for number in range(8)]
    assert len((run / ANSWERS).read_text().splitlines()) == 9
    assert "\n=" not in (run / ANSWERS).read_text().replace(",=", "\n=")


def test_stores_without_files_have_numbers(tmp_path: Path) -> None:
    images, labels = arrays(30)
    store = Store(arrays(20, 1)[0], None, ())
    model = adamatch.fit(source=(images, labels), target=store, out=tmp_path / "run", twin=False, **TINY)
    asked = model.ask(5, images=store.images)
    asked.answer([1] * 5)
    assert len((tmp_path / "run" / ANSWERS).read_text().splitlines()[1].split(",")[1]) == 64


def test_answers_are_target_labels_and_images_of_no_class_are_left_out(tmp_path: Path) -> None:
    asked = made.run(tmp_path, 30)
    with Book.opened(asked) as book:
        book.draw(8)
        book.answer(0, Answer(NONE))
        book.answer(1, Answer(UNSURE))
    with pytest.raises(InputError, match="no answer that names a class"):
        answers.labelled(asked)
    with Book.opened(asked) as book:
        named = [Path(each.name) for each in book.questions]
        for number in range(2, 8):
            book.answer(number, Answer(CLASS, made.truth(named[number].name)))
    images, labels = arrays(30)
    source = images, [made.CLASSES[each] for each in labels]
    given: dict[str, Any] = {"source": source, "target": tmp_path / "target", "target_labels": asked, **TINY}
    adamatch.fit(out=tmp_path / "better", **given)
    facts = json.loads((tmp_path / "better/run.json").read_text())
    assert (facts["task"], facts["target_labels"]) == ("ssda", "run")
    counts = json.loads((tmp_path / "better/model.json").read_text())["history"]["images"]
    assert (counts["target_labels"], counts["unlabelled"]) == (6, 29)
    asked_again = {*(tmp_path / "target").iterdir()} - {named[0], *named[2:]}  # the model is not measured on the others
    assert {*map(Path, Target.read(tmp_path / "better").names)} == asked_again
    assert "Your answers" not in page.write(tmp_path / "better").read_text()
    with Book.opened(tmp_path / "better") as book:
        book.draw(4)
        said = [made.CLASSES[book.target.said.classes[each.row]] for each in book.questions]
        for number, guess in enumerate(said):
            book.answer(number, Answer(NONE) if number == 0 else Answer(CLASS, guess))
        mistaken = Path(book.questions[0].name).name
    told = page.write(tmp_path / "better").read_text()
    answered = told[told.index('id="answers"') : told.index("</section>", told.index('id="answers"'))]
    assert "Accuracy: 75 %" in answered
    assert f"{mistaken}: called {said[0]}, and is none of the classes" in answered
    with pytest.raises(InputError, match="asked about arrays"):
        answers.labelled(_of_arrays(tmp_path / "arrays"))


def _of_arrays(folder: Path) -> Path:
    folder.mkdir()
    made.write(folder, made.CLASSES, {"root": "", "files": [], "white": 0}, 5, 0.2, None)
    return folder
