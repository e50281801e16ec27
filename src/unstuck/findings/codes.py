"""The codes of causes. A code is stable: it never changes its meaning and is never used again for another one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CODES", "Code"]


@dataclass(frozen=True)
class Code:
    """One row of the table: the code's ``name`` (``group.cause``) and its ``meaning`` in one sentence."""

    name: str
    meaning: str

    @property
    def group(self) -> str:
        """The part before the dot: data, model, loss, optim, numerics or distributed."""
        return self.name.partition(".")[0]


_TABLE: tuple[tuple[str, str], ...] = (
    ("data.nonfinite-input", "a batch already holds NaN or inf, and it reaches the loss or a gradient"),
    (
        "data.unscaled-input",
        (
            "inputs of a scale that the model can't start from (raw 0..255 pixels, unstandardised columns "
            "spanning orders of magnitude) and that visibly hurts training"
        ),
    ),
    (
        "data.constant-input",
        "the samples of a batch, or the batches, are (nearly) all the same: a dataset that ignores its index",
    ),
    ("data.conflicting-labels", "equal inputs carry different labels, so the loss has a floor above zero"),
    (
        "data.unstable-sample",
        (
            "the same index gives another sample each time although the data should be fixed (augmentation "
            "left on in an overfit test)"
        ),
    ),
    (
        "data.label-mismatch",
        "labels don't fit the head or loss: out of range, wrong dtype or shape, shifted by one, one class only",
    ),
    ("data.unshuffled", "training batches come sorted by class or target"),
    (
        "data.pairing-broken",
        "inputs and targets are paired wrongly (shuffled apart): memorised at best, nothing generalises",
    ),
    ("model.dead-units", "a layer's ReLU-like units are off for (nearly) every sample"),
    ("model.saturated-units", "sigmoid/tanh-like units sit on their flat ends"),
    (
        "model.frozen-parameters",
        "trainable-looking parameters have requires_grad=False, without that being plain transfer learning",
    ),
    (
        "model.no-gradient",
        (
            "parameters that take part in no gradient: graph cut by detach/.data/item/numpy/argmax/no_grad, "
            "or never used; a layer kept in a plain list"
        ),
    ),
    (
        "model.batch-mixing",
        (
            "sample i's output depends on sample j outside of normalisation layers (view instead of permute, "
            "softmax over the batch)"
        ),
    ),
    ("model.input-ignored", "the output doesn't depend on the input"),
    ("model.symmetric-init", "units of a layer start identical (zeros, constants) and stay so"),
    ("model.bad-init-scale", "activations grow or shrink by orders of magnitude with depth at initialisation"),
    ("model.wrong-mode", "eval() during training, or train() during evaluation (dropout, batch norm)"),
    (
        "model.norm-misuse",
        "a normalisation layer that can't work as set: batch norm over one sample or tiny batches, momentum, axis",
    ),
    (
        "model.output-activation",
        (
            "an activation on the head makes the target unreachable (ReLU on a regression output, tanh for "
            "targets outside -1..1)"
        ),
    ),
    (
        "loss.activation-mismatch",
        (
            "what the loss gets isn't what it expects: probabilities into cross_entropy or BCEWithLogits, "
            "logits into BCE or NLL"
        ),
    ),
    ("loss.broadcast", "output and target shapes differ and broadcast silently"),
    (
        "loss.wrong-sign",
        "the optimiser climbs: the objective that should fall is driven up, or the loss runs to minus infinity",
    ),
    ("loss.disconnected", "the loss carries no graph to the parameters"),
    (
        "loss.scale",
        "the loss is scaled so that its gradients are useless (sum over huge batches, times 1e-6, divided twice)",
    ),
    ("loss.wrong-dim", "softmax, mean, argmax or normalisation taken over the wrong dimension"),
    ("optim.lr-too-high", "the loss jumps or diverges, and a smaller rate on the same data learns"),
    ("optim.lr-too-low", "the loss falls steadily but far too slowly, and a larger rate on the same data learns"),
    ("optim.no-zero-grad", "gradients pile up across steps without being asked to"),
    ("optim.grad-cleared", "gradients are cleared between backward and step"),
    ("optim.no-step", "parameters never change: step not called, or called on another object"),
    ("optim.missing-parameters", "trainable parameters that no optimiser holds"),
    ("optim.stale-parameters", "the optimiser holds tensors that are no longer the model's"),
    ("optim.schedule-collapse", "the schedule drives the rate to (nearly) zero, or up, long before the planned end"),
    ("optim.exploding-gradient", "gradient norms grow until steps destroy the weights"),
    (
        "optim.vanishing-gradient",
        "early layers get gradients orders of magnitude below the late ones and don't move",
    ),
    ("optim.clip-too-tight", "clipping acts on every step and leaves an update far too small to learn"),
    (
        "optim.clip-ineffective",
        "clipping is set but can't act: called after step, before backward, or on other parameters",
    ),
    ("optim.weight-decay", "decay outweighs the gradient and pulls weights to zero"),
    (
        "optim.bad-hyperparameter",
        "momentum, betas, eps or accumulation set so that steps oscillate, vanish or explode",
    ),
    ("numerics.nonfinite-forward", "the first NaN/inf is made by an op in the forward pass; where = that op"),
    (
        "numerics.nonfinite-backward",
        (
            "forward is finite, the first NaN/inf is made by an op's backward (sqrt at 0, norm at 0, where "
            "over an unsafe branch); where = the forward line of that op"
        ),
    ),
    ("numerics.nonfinite-parameter", "weights or optimiser state turn non-finite in the update itself"),
    ("numerics.low-precision-overflow", "finite in float32, overflows or underflows in float16/bfloat16"),
    ("numerics.amp-order", "scaled gradients clipped, logged or changed before unscaling; step without the scaler"),
    ("numerics.scaler-stuck", "the loss scaler skips step after step or its scale collapses"),
    ("distributed.rank-divergence", "replicas hold different weights or buffers"),
    ("distributed.duplicate-data", "ranks read the same samples"),
    ("distributed.uneven-batches", "ranks run different numbers of steps, so collectives hang"),
    ("distributed.unused-parameters", "parameters without gradient under DDP"),
)

CODES: dict[str, Code] = {name: Code(name, meaning) for name, meaning in _TABLE}
