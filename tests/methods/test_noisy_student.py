"""NoisyStudent: which predictions become labels. Its loss is tested with the other supervised ones."""

from torch import tensor

from adamatch.methods.noisy_student import NoisyStudent


def test_confident_predictions_are_kept() -> None:
    y = tensor([[0.91, 0.09], [0.1, 0.9], [0.5, 0.5], [0.0, 1.0]])
    assert NoisyStudent(2).keep(y).tolist() == [True, False, False, True], "above 0.9, not at it"
    assert NoisyStudent(2, tau=0.4).keep(y).all()
    assert not NoisyStudent(2, tau=1.0).keep(y).any()


def test_generations_are_counted() -> None:
    assert NoisyStudent.generations({}) == 1
    assert NoisyStudent.generations({"generations": 3}) == 3
