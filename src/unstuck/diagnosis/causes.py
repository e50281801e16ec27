"""Which code is told first, and which it explains: what is wrong in the program stands before what follows from it."""

from __future__ import annotations

from collections.abc import Mapping

from unstuck.findings import CODES

__all__ = ["EXPLAINS", "ORDER", "depth"]

ORDER: tuple[str, ...] = (
    # what the data and the arithmetic are, before anything is learnt from them
    "data.nonfinite-input",
    "numerics.amp-order",
    "numerics.low-precision-overflow",
    # what is connected to what
    "loss.disconnected",
    "optim.stale-parameters",
    "optim.missing-parameters",
    "model.frozen-parameters",
    "model.no-gradient",
    "optim.no-step",
    "optim.grad-cleared",
    "optim.no-zero-grad",
    "optim.clip-ineffective",
    # what is computed
    "loss.wrong-sign",
    "loss.activation-mismatch",
    "loss.broadcast",
    "loss.wrong-dim",
    "data.label-mismatch",
    "data.constant-input",
    "model.input-ignored",
    "model.batch-mixing",
    "model.wrong-mode",
    "model.norm-misuse",
    "model.output-activation",
    "model.symmetric-init",
    "data.conflicting-labels",
    "data.unstable-sample",
    "data.pairing-broken",
    "data.unshuffled",
    "data.unscaled-input",
    # how it is driven
    "optim.schedule-collapse",
    "optim.clip-too-tight",
    "optim.weight-decay",
    "optim.bad-hyperparameter",
    "loss.scale",
    "model.bad-init-scale",
    "optim.lr-too-high",
    "optim.lr-too-low",
    # what is seen of it
    "optim.exploding-gradient",
    "numerics.nonfinite-parameter",
    "numerics.nonfinite-backward",
    "numerics.nonfinite-forward",
    "numerics.scaler-stuck",
    "optim.vanishing-gradient",
    "model.dead-units",
    "model.saturated-units",
)
"""Every code outside ``distributed``, the deepest cause first: the order among findings of one severity."""

_CANT_LEARN = (
    "optim.lr-too-low",
    "optim.vanishing-gradient",
    "optim.weight-decay",
    "loss.scale",
    "optim.clip-too-tight",
)
_BLOWS_UP = (
    "optim.exploding-gradient",
    "optim.lr-too-high",
    "model.dead-units",
    "model.saturated-units",
    "optim.vanishing-gradient",
)

EXPLAINS: Mapping[str, tuple[str, ...]] = {
    "data.nonfinite-input": ("numerics.scaler-stuck",),
    "numerics.amp-order": ("optim.exploding-gradient", "optim.vanishing-gradient", "optim.clip-too-tight"),
    "numerics.low-precision-overflow": (*_CANT_LEARN, "numerics.scaler-stuck"),
    "loss.disconnected": (*_CANT_LEARN, "model.no-gradient", "optim.no-step"),
    "optim.stale-parameters": (*_CANT_LEARN, "optim.missing-parameters", "model.no-gradient", "optim.no-step"),
    "optim.missing-parameters": _CANT_LEARN,
    "model.frozen-parameters": _CANT_LEARN,
    "model.no-gradient": _CANT_LEARN,
    "optim.no-step": (*_CANT_LEARN, "optim.schedule-collapse"),
    "optim.grad-cleared": (*_CANT_LEARN, "model.no-gradient", "optim.no-step"),
    "optim.no-zero-grad": _BLOWS_UP,
    "optim.clip-ineffective": ("optim.exploding-gradient", "model.dead-units", "model.saturated-units"),
    "loss.wrong-sign": _BLOWS_UP,
    "loss.activation-mismatch": (
        *_CANT_LEARN,
        "optim.lr-too-high",
        "model.saturated-units",
        "model.output-activation",
    ),
    "loss.broadcast": (*_CANT_LEARN, "optim.lr-too-high"),
    "loss.wrong-dim": _CANT_LEARN,
    "data.label-mismatch": _CANT_LEARN,
    "data.constant-input": (*_CANT_LEARN, "data.conflicting-labels"),
    "model.input-ignored": (*_CANT_LEARN, "model.no-gradient"),
    "model.batch-mixing": (*_CANT_LEARN, "loss.wrong-dim"),
    "model.wrong-mode": ("optim.lr-too-low", "optim.lr-too-high"),
    "model.norm-misuse": ("optim.lr-too-low", "optim.lr-too-high", "model.dead-units", "model.input-ignored"),
    "model.output-activation": (*_CANT_LEARN, "model.dead-units", "model.saturated-units"),
    "model.symmetric-init": (
        *_CANT_LEARN,
        "model.dead-units",
        "model.saturated-units",
        "model.input-ignored",
        "model.bad-init-scale",
    ),
    "data.conflicting-labels": ("optim.lr-too-low",),
    "data.unstable-sample": ("optim.lr-too-low", "data.conflicting-labels"),
    "data.unshuffled": (*_BLOWS_UP, "optim.lr-too-low"),
    "data.unscaled-input": (*_BLOWS_UP, "optim.lr-too-low", "model.bad-init-scale"),
    "optim.schedule-collapse": ("optim.lr-too-low", "optim.lr-too-high", "optim.vanishing-gradient"),
    "optim.clip-too-tight": ("optim.lr-too-low",),
    "optim.weight-decay": ("optim.lr-too-low", "optim.vanishing-gradient", "model.dead-units"),
    "optim.bad-hyperparameter": ("optim.lr-too-low", "optim.lr-too-high", "optim.exploding-gradient"),
    "loss.scale": ("optim.lr-too-low", "optim.lr-too-high", "optim.vanishing-gradient", "optim.exploding-gradient"),
    "model.bad-init-scale": (*_BLOWS_UP, "optim.lr-too-low", "model.input-ignored"),
    "optim.lr-too-high": ("optim.exploding-gradient", "model.dead-units", "model.saturated-units"),
    "numerics.nonfinite-backward": ("numerics.scaler-stuck",),
    "numerics.nonfinite-forward": ("numerics.scaler-stuck",),
    "model.dead-units": ("optim.vanishing-gradient", "optim.lr-too-low"),
    "model.saturated-units": ("optim.vanishing-gradient", "optim.lr-too-low"),
    "optim.vanishing-gradient": ("optim.lr-too-low",),
}
"""Causes and the findings that aren't reported beside them, since they follow from them."""


def depth(code: str) -> int:
    """Place in the order; codes that it doesn't list come last."""
    return ORDER.index(code) if code in ORDER else len(ORDER)


assert set(EXPLAINS) <= set(ORDER) <= set(CODES)
