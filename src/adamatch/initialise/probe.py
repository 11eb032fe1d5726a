"""The first weights of a head: a linear classifier on the features of the starting weights.

A head that starts at random has the first steps spoil what the layers below it have learned (Kumar et al., ICLR 2022).
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

DECAY = 0.05  # of the classifier's weights, for features of mean 0 and variance 1
ROUNDS = 100  # of L-BFGS, at most


def fit_head(head: nn.Linear, x: Tensor, y: Tensor) -> None:
    """Give the head the weights of a classifier of y [n, k] on features x [n, d]."""
    weight, bias = classifier(x, y)
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)


def classifier(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Multinomial logistic regression of y [n, k] on x [n, d]: weight [k, d] and bias [k]."""
    mean, spread = x.mean(0), deviation(x)
    z = (x - mean) / spread
    weight = torch.zeros(y.shape[1], x.shape[1], device=x.device, requires_grad=True)
    bias = torch.zeros(y.shape[1], device=x.device, requires_grad=True)
    search = torch.optim.LBFGS([weight, bias], max_iter=ROUNDS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        search.zero_grad()
        found = cross_entropy(z @ weight.T + bias, y) + DECAY / 2 * weight.square().sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    search.step(loss)  # type: ignore[no-untyped-call]
    scaled = (weight / spread).detach()
    return scaled, bias.detach() - scaled @ mean


def deviation(x: Tensor) -> Tensor:
    """The standard deviation of each feature [d]; tiny ones are clamped: a feature constant here may vary elsewhere."""
    found = x.std(0, correction=0)
    return found.clamp(min=0.1 * float(found.mean()) + 1e-6)
