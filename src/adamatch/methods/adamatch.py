"""AdaMatch (Berthelot, Roelofs, Sohn, Carlini, Kurakin; ICLR 2022), section 3, equation by equation."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from adamatch.base.errors import InputError
from adamatch.methods import arguments, parts, schedules
from adamatch.methods.averages import ClassThresholds, Running, Window
from adamatch.methods.contract import Batch, Method, Metrics, Pass, Phase


class AdaMatch(Method):
    """The loss of one batch. Its components can be taken out one at a time.

    interpolate   random logit interpolation, or the joint forward's logits alone
    align         what target predictions are aligned to: the network's "source" output, the source "labels"
                  (as ReMixMatch does), a known "target" distribution, or "none"
    alignment_clip  the largest factor by which alignment makes a class more or less likely (0: none, as in the paper):
                  a class that is found far more rarely than in the source may be rare, not overlooked
    fade_out      whether alignment fades out over the second half of the run (not the paper's; see
                  docs/what-matters.md)
    threshold     "relative" to the confidence on source images, or "fixed" at tau; and not in the paper: "classes", the
                  relative one, lower for classes of which few labels pass (after FlexMatch)
    source_loss   "sum" of the weak and the strong view's, as printed, or "half" of it for each of `batches`, as the
                  authors' code has it: with two they are the same
    batches       how many batches of labelled images there are in one: 2 where each of two pools fills one (None:
                  `pools`)
    pools         where threshold and alignment come from: 1, all labelled images, as the text says; the number of
                  pools, those of the first, as the authors' code has it
    target        the known class distribution [k], for align="target"
    warm_up       the part of the run over which mu rises from 0 to 1
    alignment_window  batches over which the target's class average is taken
    alignment_decay  of the source's class average
    knn_anchor    whether labels from before training, of unlabelled images, count while mu is small (not the paper's)
    anchor_floor  their weight is 1 - mu, and at least this
    """

    def __init__(
        self,
        classes: int,
        *,
        tau: float = 0.9,
        interpolate: bool = True,
        align: Literal["source", "labels", "target", "none"] = "source",
        alignment_clip: float = 0.0,
        fade_out: bool = False,
        threshold: Literal["relative", "fixed", "classes"] = "relative",
        source_loss: Literal["sum", "half"] = "half",
        batches: float | None = None,
        pools: int = 1,
        target: Tensor | Sequence[float] | None = None,
        warm_up: float = 0.5,
        alignment_window: int = 128,
        alignment_decay: float = 0.999,
        knn_anchor: bool = False,
        anchor_floor: float = 0.0,
    ) -> None:
        super().__init__()
        self.classes = classes
        if (align == "target") != (target is not None):
            raise InputError(
                "align='target' and a known class distribution (target=) go together: give both or neither"
            )
        self.tau, self.interpolate = arguments.probability("tau", tau), arguments.flag("interpolate", interpolate)
        self.align = arguments.one_of("align", align, "source", "labels", "target", "none")
        self.limit, self.fade_out = (
            arguments.factor("alignment_clip", alignment_clip),
            arguments.flag("fade_out", fade_out),
        )
        self.threshold = arguments.one_of("threshold", threshold, "relative", "fixed", "classes")
        self.pools = arguments.count("pools", pools)
        batches = self.pools if batches is None else arguments.above_zero("batches", batches)
        if self.pools not in (1, batches):
            says = f"pools is 1 or the number of full labelled batches in a step, {int(batches)} here"
            raise InputError(f"{says}; not {pools!r} (repeat=True fills those of target labels)")
        self.batches = batches if arguments.halved(source_loss) else None
        self.warm_up, self.knn_anchor = arguments.part("warm_up", warm_up), arguments.flag("knn_anchor", knn_anchor)
        self.anchor_floor = arguments.weight("anchor_floor", anchor_floor)
        self.mean_sl = Running(classes, arguments.probability("alignment_decay", alignment_decay))  # E[Y_SL,w]
        self.mean_tu = Window(classes, arguments.count("alignment_window", alignment_window))  # E[Y_TU,w]
        self.class_thresholds = ClassThresholds(classes, alignment_window) if threshold == "classes" else None
        self.known: Tensor | None
        self.register_buffer("known", None if target is None else arguments.distribution(target, classes))
        self.phases = [Phase(self.loss)]

    @classmethod
    def passes(cls, labelled: int, unlabelled: int) -> list[Pass]:
        """Labelled images twice: alone, and together with the unlabelled ones."""
        return [Pass(4 * labelled + 2 * unlabelled, groups=(2 * labelled, 2 * labelled + 2 * unlabelled))]

    @property
    def shares(self) -> Tensor:
        return self.mean_tu.means.mean(0)

    def loss(self, net: nn.Module, batch: Batch) -> tuple[Tensor, Metrics]:
        x_sl = torch.cat([batch.x_sl_w, batch.x_sl_s])
        x_tu_w, x_tu_s = batch.x_tu_w, batch.x_tu_s

        if self.interpolate:
            z_sl_joint, z_tu_w, z_tu_s, z_sl_alone = parts.forward_twice(net, x_sl, x_tu_w, x_tu_s)  # eq. (1), (2), (4)
            z_sl = parts.interpolate(z_sl_joint, z_sl_alone, batch.lam)  # eq. (3)
            gap = (z_sl_joint - z_sl_alone).detach().abs().mean()
        else:
            z_sl, z_tu_w, z_tu_s = parts.forward_guessing(net, x_sl, x_tu_w, x_tu_s)  # eq. (1), (4)
            gap = torch.zeros_like(batch.progress)

        z_sl_w, z_sl_s = z_sl.chunk(2)  # eq. (4)
        n_source = len(z_sl_w) // self.pools
        y_sl_w = z_sl_w[:n_source].detach().softmax(1)  # eq. (5)
        y_tu_w = z_tu_w.detach().softmax(1)

        mean_sl = self.mean_sl(parts.frequencies(batch.y_sl[:n_source]) if self.align == "labels" else y_sl_w.mean(0))
        mean_tu = self.mean_tu(y_tu_w.mean(0))
        mu = schedules.warm_up(batch.progress, self.warm_up)
        wanted = mean_sl if self.known is None else self.known
        kept = schedules.let_go(batch.progress) if self.fade_out else 1.0
        y_tilde = y_tu_w if self.align == "none" else parts.align(y_tu_w, wanted, mean_tu, kept, self.limit)  # eq. (6)
        c_tau = parts.relative_threshold(y_sl_w, self.tau)  # eq. (7)
        if self.threshold == "fixed":
            c_tau = torch.full_like(c_tau, self.tau)
        mask = parts.confident(y_tilde, c_tau)  # eq. (8)
        if self.class_thresholds is not None:
            mask = self.class_thresholds(y_tilde, c_tau)

        pseudo = parts.hard(y_tilde)
        loss_source = parts.labelled_loss(batch.y_sl, z_sl_w, z_sl_s, self.batches)  # eq. (9)
        loss_target = parts.pseudo_labelled_loss(pseudo, mask, z_tu_s)  # eq. (10)
        loss = loss_source + mu * loss_target  # eq. (11)
        if self.knn_anchor:
            weight = (1 - mu).clamp(min=self.anchor_floor)
            loss = loss + weight * parts.first_loss(batch.y_tu_first, z_tu_s)

        return loss, {
            "loss_source": loss_source.detach(),
            "loss_target": loss_target.detach(),
            "threshold": c_tau,
            "mask": mask.mean(),
            "pseudo_labels": (pseudo * mask[:, None]).mean(0),  # [k]
            "divergence": parts.divergence(wanted, mean_tu),
            "logit_gap": gap,
        }
