"""FixMatch (Sohn et al., NeurIPS 2020); FixMatch+: with distribution alignment (Berthelot et al., ICLR 2020)."""

from typing import Literal

import torch
from torch import Tensor, nn

from adamatch.methods import arguments, parts, schedules
from adamatch.methods.averages import Running, Window
from adamatch.methods.contract import Batch, Method, Metrics, Phase


class FixMatch(Method):
    """Labels guessed from weak views train strong ones, on source and target images alike; no warm-up.

    tau       the fixed threshold of a pseudo-label's confidence
    align     what pseudo-labels are aligned to: the frequency of the source "labels" (FixMatch+), or "none" (FixMatch)
    alignment_clip  the largest factor by which alignment makes a class more or less likely, as in AdaMatch (0: none)
    fade_out      whether alignment fades out over the second half of the run, as in AdaMatch
    alignment_window  batches over which the class average of guesses is taken
    alignment_decay  of the labels' class average
    knn_anchor, anchor_floor  whether labels from before training count over the first half of the run, as in AdaMatch
    """

    def __init__(
        self,
        classes: int,
        *,
        tau: float = 0.9,
        align: Literal["labels", "none"] = "labels",
        alignment_clip: float = 0.0,
        fade_out: bool = False,
        alignment_window: int = 128,
        alignment_decay: float = 0.999,
        knn_anchor: bool = False,
        anchor_floor: float = 0.0,
    ) -> None:
        super().__init__()
        self.classes = classes
        self.tau, self.knn_anchor = arguments.probability("tau", tau), arguments.flag("knn_anchor", knn_anchor)
        self.anchor_floor = arguments.weight("anchor_floor", anchor_floor)
        self.align = arguments.one_of("align", align, "labels", "none")
        self.limit, self.fade_out = (
            arguments.factor("alignment_clip", alignment_clip),
            arguments.flag("fade_out", fade_out),
        )
        self.mean_labels = Running(classes, arguments.probability("alignment_decay", alignment_decay))
        self.mean_guesses = Window(classes, arguments.count("alignment_window", alignment_window))
        self.phases = [Phase(self.loss)]

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        x_s = torch.cat([batch.x_sl_s, batch.x_tu_s])
        z_sl_w, z_tu_w, z_s = parts.forward_guessing(net, batch.x_sl_w, batch.x_tu_w, x_s)

        y_w = torch.cat([z_sl_w, z_tu_w]).detach().softmax(1)  # [n_sl + n_tu, k]
        wanted, found = self.mean_labels(parts.frequencies(batch.y_sl)), self.mean_guesses(y_w.mean(0))
        kept = schedules.let_go(batch.progress) if self.fade_out else 1.0
        y_tilde = y_w if self.align == "none" else parts.align(y_w, wanted, found, kept, self.limit)
        pseudo, mask = parts.hard(y_tilde), parts.confident(y_tilde, self.tau)

        # As in the authors' code, labelled images have their labels in the weak view only; the strong one has
        # pseudo-labels.
        loss_source = parts.labelled_mean(batch.y_sl, z_sl_w)
        loss_target = parts.pseudo_labelled_loss(pseudo, mask, z_s)
        loss = loss_source + loss_target
        unlabelled = slice(len(z_sl_w), None)  # metrics are of these, as in AdaMatch
        if self.knn_anchor:
            weight = (1 - schedules.warm_up(batch.progress)).clamp(min=self.anchor_floor)
            loss = loss + weight * parts.first_loss(batch.y_tu_first, z_s[unlabelled])

        return loss, {
            "loss_source": loss_source.detach(),
            "loss_target": loss_target.detach(),
            "threshold": torch.full_like(batch.progress, self.tau),
            "mask": mask[unlabelled].mean(),
            "pseudo_labels": (pseudo * mask[:, None])[unlabelled].mean(0),  # [k]
            "divergence": parts.divergence(wanted, found),
        }
