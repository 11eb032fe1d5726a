"""The tasks: which images come with labels, which without."""

import math
import statistics
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adamatch.base.errors import InputError
from adamatch.images.store import Store
from adamatch.images.tasks import (
    EVEN,
    Labelled,
    Problem,
    Unlabelled,
    add_labelled,
    balanced,
    choose_labelled,
    few_of_many,
    labelled,
    make_problem,
    split_hash,
)

CLASSES = ("ant", "bee", "cow")


def store(count: int, first: int = 0) -> Store:
    """Every image tells its own number: all its pixels are `first` + its place."""
    images = np.arange(first, first + count, dtype=np.uint8).repeat(8 * 8 * 3).reshape(count, 8, 8, 3)
    return Store(images, np.arange(count, dtype=np.int64) % 3, CLASSES)


SOURCE, MORE, TARGET, TEST = store(30), store(9, 30), store(24, 100), store(6, 200)


def problem(task: str, labels: int = 0, seed: int = 0, sources: tuple[Store, ...] = (SOURCE,)) -> Problem:
    return make_problem(task, sources, TARGET, {"target": TEST}, labels=labels, seed=seed)


def numbers(pool: Labelled | Unlabelled) -> list[int]:
    return [int(image.flat[0]) for part in pool.parts for image in part]


def right(pool: Labelled) -> bool:
    """Whether every image still has the label that it had in its store."""
    first = ((0, 30), (30, 9), (100, 24))
    origin = {start + place: place % 3 for start, count in first for place in range(count)}
    return [origin[n] for n in numbers(pool)] == list(pool.labels)


def test_uda_has_the_source_with_labels_and_the_target_without() -> None:
    posed = problem("uda")
    (pool,) = posed.labelled
    assert numbers(pool) == list(range(30))
    assert right(pool)
    assert numbers(posed.unlabelled) == list(range(100, 124))
    assert posed.chosen == ()
    assert posed.classes == CLASSES
    assert pool.parts[0] is SOURCE.images, "nothing is copied"
    assert posed.unlabelled.parts[0] is TARGET.images
    (pool,) = problem("uda", sources=(SOURCE, MORE)).labelled
    assert (len(pool), len(pool.parts), numbers(pool)) == (39, 2, list(range(39))), "several sources are one pool"
    assert right(pool)
    assert [each.name for each in fields(Unlabelled)] == ["parts"], "an unlabelled pool is images and nothing else"


@pytest.mark.parametrize("k", [1, 5, 8])
def test_ssl_has_k_labels_per_class_and_all_images_without(k: int) -> None:
    posed = problem("ssl", k, sources=())
    (pool,) = posed.labelled
    assert np.bincount(pool.labels.astype(int)).tolist() == [k, k, k]
    assert numbers(pool) == [100 + row for row in posed.chosen]
    assert right(pool)
    assert numbers(posed.unlabelled) == list(range(100, 124))  # the whole training set, labelled images too


def test_ssda_has_two_labelled_pools() -> None:
    posed = problem("ssda", 2)
    source, few = posed.labelled
    assert numbers(source) == list(range(30))
    assert len(few) == 6
    assert min(numbers(few)) >= 100
    assert right(source)
    assert right(few)
    assert numbers(posed.unlabelled) == list(range(100, 124))


def test_oracle_has_all_labels_of_both() -> None:
    source, target = problem("oracle").labelled
    assert (numbers(source), numbers(target)) == (list(range(30)), list(range(100, 124)))
    assert right(target)


def test_the_subset_depends_on_seed_and_count_and_on_nothing_else() -> None:
    subsets = {(k, seed): problem("ssl", k, seed).chosen for k in (2, 3) for seed in range(5)}
    assert len(set(subsets.values())) == 10
    assert problem("ssda", 2, 3).chosen == subsets[2, 3]  # the same images for the same seed in another task
    assert len({split_hash(chosen) for chosen in subsets.values()}) == 10


def test_the_choice_is_known() -> None:
    """A change here would make labelled subsets of older runs another set of images."""
    rows, _ = choose_labelled(np.arange(24) % 3, CLASSES, 2, 0)
    assert rows.tolist() == [6, 15, 1, 10, 5, 8]
    assert split_hash(rows.tolist()) == "1019cbd61f59"


@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(0, 12), min_size=2, max_size=6).filter(any),
    k=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_k_of_every_class_or_as_many_as_it_has(counts: list[int], k: int, seed: int) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    names = [f"class-{number}" for number in range(len(counts))]
    short = [f"{name} ({count})" for name, count in zip(names, counts, strict=True) if 0 < count < k]
    rows, notes = choose_labelled(labels, names, k, seed)
    assert len(set(rows)) == len(rows)
    assert np.bincount(labels[rows], minlength=len(counts)).tolist() == [min(k, count) for count in counts]
    assert len(notes) == counts.count(0) + bool(short)
    assert not short or f"fewer than {k} images, all of them labelled, has class {', '.join(short[:5])}" in notes[-1]


@pytest.mark.parametrize(
    ("task", "labels", "says"),
    [
        ("uda", 3, "task uda takes no target labels: leave labels at 0, or choose ssda"),
        ("oracle", 1, "task oracle takes no target labels"),
        ("ssl", 0, "task ssl needs labelled target images: give labels=K"),
        ("ssda", 0, "task ssda needs labelled target images"),
        ("ssda", -1, "task ssda needs labelled target images"),
        ("usda", 0, "no task is called 'usda': did you mean"),
    ],
)
def test_what_makes_no_sense_is_said(task: str, labels: int, says: str) -> None:
    with pytest.raises(InputError) as error:
        problem(task, labels)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_images_without_labels_cannot_teach() -> None:
    bare = Store(SOURCE.images, None, CLASSES)
    with pytest.raises(InputError, match="labels are needed"):
        make_problem("uda", [bare], TARGET, {})
    with pytest.raises(InputError, match="labels are needed"):
        make_problem("ssda", [SOURCE], Store(TARGET.images, None, CLASSES), {}, labels=1)
    assert len(make_problem("uda", [SOURCE], Store(TARGET.images, None, CLASSES), {}).unlabelled) == 24


def test_a_teachers_images_join_the_labelled_ones() -> None:
    posed = problem("ssda", 2)
    soft = np.random.default_rng(0).dirichlet([1, 1, 1], 4).astype(np.float32)
    mixed = add_labelled(posed, Labelled((TARGET.images[:4],), soft), 3, 0)
    (pool,) = mixed.labelled
    assert numbers(pool) == [*range(30), *(100 + row for row in posed.chosen), 100, 101, 102, 103]
    np.testing.assert_array_equal(pool.labels[:36], np.eye(3)[np.concatenate([each.labels for each in posed.labelled])])
    np.testing.assert_array_equal(pool.labels[36:], soft)
    assert mixed.unlabelled is posed.unlabelled
    assert (posed.probes, mixed.probes) == ((), posed.labelled), "a student is probed with images of true labels"
    nothing = add_labelled(posed, Labelled((TARGET.images[:0],), soft[:0]), 3, 0)  # a teacher that is sure of nothing
    assert len(nothing.labelled[0]) == 36


@given(
    source=st.integers(1, 60),
    few=st.integers(1, 9),
    target=st.integers(1, 60),
    kept=st.floats(0, 1),
    uratio=st.integers(1, 7),
)
@settings(report_multiple_bugs=False)  # one assertion that fails, not a group of them
def test_a_students_batch_is_mixed_as_the_teachers_was(
    source: int, few: int, target: int, kept: float, uratio: int
) -> None:
    """The authors' loader: a labelled image of each pool, `uratio` unlabelled ones, of which some have a label."""
    sure = int(kept * target)
    posed = Problem((labelled(store(source)), labelled(store(few))), Unlabelled((store(target).images,)), CLASSES)
    sure_of = Labelled((store(sure).images,), np.full((sure, 3), 1 / 3, np.float32))
    (pool,) = add_labelled(posed, sure_of, uratio, 0).labelled
    assert pool.drawn is not None
    counts = np.bincount(pool.drawn, minlength=len(pool))
    of_source, of_few, of_sure = np.split(counts, [source, source + few])
    assert of_source.sum() == of_few.sum()
    assert (counts > 0).all()  # nobody is left out
    assert max(np.ptp(of_source), np.ptp(of_few), np.ptp(of_sure) if sure else 0) <= 1  # nor is anybody preferred
    steps = max(1, round(target / uratio))
    assert of_sure.sum() * steps == sure * of_source.sum()


@pytest.mark.parametrize("target", [1000, 2400, 3000, 4799])  # rows were in an epoch twice or once, by their place
def test_no_class_is_preferred_where_a_students_images_are_in_the_order_of_their_classes(target: int) -> None:
    images = np.zeros((1600, 1, 1, 3), np.uint8)
    pool = Labelled((images,), np.repeat(np.arange(16), 100))
    posed = Problem((pool,), Unlabelled((np.zeros((target, 1, 1, 3), np.uint8),)), tuple("abcdefghijklmnop"))
    nothing = Labelled((images[:0],), np.zeros((0, 16), np.float32))
    epochs = [add_labelled(posed, nothing, 3, seed).labelled[0].drawn for seed in (0, 0, 1)]
    counts = [np.bincount(epoch, minlength=1600) for epoch in epochs if epoch is not None]
    of_classes = np.bincount(pool.labels.astype(int), weights=counts[0])
    assert counts[0].min() >= EVEN
    assert np.ptp(counts[0]) <= 1
    assert np.ptp(of_classes) < 0.05 * of_classes.mean()
    assert np.array_equal(counts[0], counts[1])  # the same for a seed, on every machine and rank
    assert np.ptp(counts[0]) == 0 or not np.array_equal(counts[0], counts[2])  # who comes once more is drawn


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any))
def test_rare_classes_are_as_much_of_a_balanced_epoch_as_the_median_one(counts: list[int]) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    pool = balanced(Labelled((np.zeros((len(labels), 1, 1, 3), np.uint8),), labels))
    median = math.ceil(statistics.median(count for count in counts if count))
    rare = [0 < count < median / 2 for count in counts]
    assert (pool.drawn is not None) == any(rare)
    often = np.ones(len(labels)) if pool.drawn is None else np.bincount(pool.drawn, minlength=len(labels))
    for number, count in enumerate(counts):
        mine = often[labels == number]
        assert mine.sum() == (median if rare[number] else count)
        assert not count or np.ptp(mine) <= 1  # nobody of a class is preferred
    for kept in (Labelled(pool.parts, labels, np.flatnonzero(labels >= 0)), Labelled(pool.parts, np.eye(6)[labels])):
        assert balanced(kept) is kept, "what says itself what is drawn, and probabilities"


def test_few_labelled_images_among_many_are_one_domain() -> None:
    ssl = problem("ssl", 2)
    assert few_of_many(ssl, 2)
    assert not few_of_many(ssl, 1)
    assert not few_of_many(problem("uda"), 10)  # other images
    assert not few_of_many(problem("ssda", 2), 100)
    assert few_of_many(problem("ssl", 4), 10)
    assert not few_of_many(problem("ssl", 5), 10)  # most images are labelled
    one_more = Labelled((TARGET.images[:5], SOURCE.images[:1]), np.zeros(6, np.int64))
    assert not few_of_many(Problem((one_more,), Unlabelled((TARGET.images,)), CLASSES), 2)
    assert few_of_many(Problem((one_more,), Unlabelled((TARGET.images, SOURCE.images)), CLASSES), 2)
