"""The layers of a program as an anatomy shows them: operations with weights, what feeds them, the lines behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from unstuck.places import Frame
from unstuck.record.anatomy import Anatomy, ModelPart, Op, Value
from unstuck.record.recording import Recording

__all__ = ["Graph", "Layer", "graphs_of"]

_PASSING = frozenset(
    (
        "t",
        "transpose",
        "permute",
        "view",
        "reshape",
        "expand",
        "unsqueeze",
        "squeeze",
        "detach",
        "alias",
        "to",
        "to_copy",
        "copy",
        "contiguous",
        "clone",
        "flatten",
        "unflatten",
        "unsafe_view",
        "select",
        "slice",
        "narrow",
        "split",
        "chunk",
        "swapaxes",
        "movedim",
        "numpy_T",
        "mT",
        "as_strided",
    )
)
"""Operations that hand on what they took."""

_KINDS = {
    "linear": "linear",
    "addmm": "linear",
    "mm": "linear",
    "matmul": "linear",
    "bmm": "linear",
    "baddbmm": "linear",
    "mv": "linear",
    "convolution": "convolution",
    "batch_norm": "norm",
    "layer_norm": "norm",
    "group_norm": "norm",
    "rms_norm": "norm",
    "embedding": "embedding",
    "lstm": "recurrent",
    "gru": "recurrent",
    "rnn": "recurrent",
}


@dataclass(frozen=True)
class Layer:
    """An operation with a weight.

    Attributes:
        index: of the operation.
        kind: ``linear``, ``convolution``, ``recurrent``, ``embedding`` or ``norm``.
        weight: the weight's dotted path; None for a normalisation without one.
        bias: the bias's.
    """

    index: int
    kind: str
    weight: str | None
    bias: str | None

    @property
    def module(self) -> str | None:
        """Path of the module that owns the weight; None for a parameter of the model itself, or no weight."""
        return (self.weight or "").rpartition(".")[0] or None


class Graph:
    """An anatomy with its layers and the ways between them; forward operations that record gradients only.

    Attributes:
        anatomy: what it was built from.
        layers: by the index of their operation.
    """

    def __init__(self, anatomy: Anatomy) -> None:
        self.anatomy = anatomy
        self._parts = {part.path: part for part in anatomy.parts}
        self._users: dict[int, list[int]] = {}
        self.layers: dict[int, Layer] = {}
        for index, op in anatomy.forward():
            if not op.grad_mode:
                continue
            for value in op.inputs:
                if value.op is not None:
                    self._users.setdefault(value.op, []).append(index)
            layer = self._layer(index, op)
            if layer is not None:
                self.layers[index] = layer

    # -- layers ------------------------------------------------------------------------------------------------------

    def _layer(self, index: int, op: Op) -> Layer | None:
        kind = _KINDS.get(op.name)
        if kind is None:
            return None
        named = [(value, name) for value in op.inputs if (name := self.parameter(value)) is not None]
        if not named:
            return Layer(index, kind, None, None) if kind == "norm" else None
        weights = [name for value, name in named if len(value.shape) > 1 or kind == "norm"]
        weight = weights[0] if weights else None
        biases = [name for _, name in named if name not in weights[:1] and name.rpartition(".")[2].startswith("bias")]
        if weight is None and kind != "norm":
            return None
        return Layer(index, kind, weight, biases[0] if biases else None)

    def parameter(self, value: Value) -> str | None:
        """Name of the parameter that a value is, or is a view of."""
        for _ in range(6):
            if value.leaf == "parameter":
                return value.name
            if value.op is None:
                return None
            op = self.anatomy.ops[value.op]
            if op.name not in _PASSING or not op.inputs:
                return None
            value = op.inputs[0]
        return None

    def trainable(self, layer: Layer) -> bool:
        """Whether gradients reach the layer's weight."""
        part, name = self.part(layer.weight)
        return part is not None and name not in part.frozen

    def module(self, path: str | None) -> ModelPart | None:
        """The module of a path."""
        return None if path is None else self._parts.get(path)

    def part(self, parameter: str | None) -> tuple[ModelPart | None, str]:
        """The module that owns a parameter, and the parameter's name there."""
        path, _, name = (parameter or "").rpartition(".")
        return self._parts.get(path), name

    def leaf(self, layer: Layer, parameter: str | None) -> Value | None:
        """One of a layer's parameters with its numbers, as the layer took it or before it was turned."""
        value = next(
            (item for item in self.anatomy.ops[layer.index].inputs if parameter and self.parameter(item) == parameter),
            None,
        )
        while value is not None and value.leaf != "parameter":
            value = None if value.op is None else self.anatomy.ops[value.op].inputs[0]
        return value

    def unit_dimension(self, layer: Layer) -> int:
        """The dimension of a layer's weight along which its units lie."""
        op = self.anatomy.ops[layer.index]
        if layer.kind == "convolution":
            return 1 if op.settings.get("transposed") else 0
        if layer.kind != "linear":
            return 0
        value = next(value for value in op.inputs if self.parameter(value) == layer.weight)
        factors = op.inputs[1:] if op.name in ("addmm", "baddbmm") else op.inputs
        on_the_left = bool(factors) and factors[0] == value
        turned = False
        while value.leaf != "parameter" and value.op is not None:
            turned ^= self.anatomy.ops[value.op].name in ("t", "transpose", "numpy_T", "mT")
            value = self.anatomy.ops[value.op].inputs[0]
        return int(turned) if on_the_left else int(not turned)

    def units(self, layer: Layer) -> int:
        """Units of a layer, 0 if that isn't known."""
        part, name = self.part(layer.weight)
        shape = part.parameters.get(name, ()) if part is not None else ()
        return shape[self.unit_dimension(layer)] if len(shape) > 1 else 0

    # -- ways --------------------------------------------------------------------------------------------------------

    def users(self, index: int) -> Iterator[int]:
        """Operations that take a result, beyond those that only hand it on."""
        for user in self._users.get(index, ()):
            if self.anatomy.ops[user].name in _PASSING:
                yield from self.users(user)
            else:
                yield user

    def result(self, value: Value) -> Value:
        """A value with its numbers: as the operation made it, where one did."""
        outputs = () if value.op is None else self.anatomy.ops[value.op].outputs
        return outputs[value.slot] if value.slot < len(outputs) else value

    def fed(self, layer: Layer) -> Value | None:
        """What a layer takes beside its parameters, with its numbers."""
        for value in self.anatomy.ops[layer.index].inputs:
            if self.parameter(value) is None and value.leaf != "buffer":
                return self.result(value)
        return None

    def source(self, value: Value) -> int | None:
        """The operation that made a value's numbers, beyond those that only hand them on."""
        while value.op is not None:
            op = self.anatomy.ops[value.op]
            if op.name not in _PASSING or not op.inputs:
                return value.op
            value = op.inputs[0]
        return None

    def before(self, index: int) -> Layer | None:
        """The layer that an activation function works on: the nearest one upstream, on a way that gradients take.

        Where the results of several are added up, the one whose result varies most.
        """
        waiting, seen, found = [index], {index}, []
        while waiting:
            here = waiting.pop(0)
            if here != index and here in self.layers:
                found.append(self.layers[here])
                continue
            for value in self.anatomy.ops[here].inputs:
                if value.op is not None and value.op not in seen and value.grad:
                    seen.add(value.op)
                    waiting.append(value.op)
        return max(found, key=lambda layer: self.anatomy.ops[layer.index].outputs[0].std or 0.0, default=None)

    def after(self, index: int) -> bool:
        """Whether a layer with a weight lies downstream: what is computed here is no output."""
        waiting, seen = [index], {index}
        while waiting:
            here = waiting.pop()
            for user in self._users.get(here, ()):
                if user in seen:
                    continue
                layer = self.layers.get(user)
                if layer is not None and layer.kind != "norm":
                    return True
                seen.add(user)
                waiting.append(user)
        return False

    def is_passed_by(self, index: int) -> bool:
        """Whether the loss depends on earlier layers by a way around an operation too: a residual, a gate, a branch."""
        loss = min((made for _, made in self.anatomy.losses() if made is not None and made > index), default=None)
        if loss is None:
            return True
        waiting, seen = [loss], {loss, index}
        while waiting:
            here = waiting.pop()
            if here in self.layers and here < index:
                return True
            for value in self.anatomy.ops[here].inputs:
                if value.op is not None and value.op not in seen and value.grad:
                    seen.add(value.op)
                    waiting.append(value.op)
        return False

    # -- lines -------------------------------------------------------------------------------------------------------

    def made_at(self, parameter: str | None) -> tuple[Frame, ...]:
        """The user's lines down to the construction of the module that owns a parameter."""
        part, _ = self.part(parameter)
        return self.made(None if part is None else part.path)

    def made(self, path: str | None) -> tuple[Frame, ...]:
        """The user's lines down to the construction of a module."""
        part = self.module(path)
        while part is not None:
            chain = self.anatomy.chain(part.made_at)
            if chain or not part.path:
                return chain
            part = self._parts.get(part.path.rpartition(".")[0])  # a copy: where the module around it was made
        return ()

    def filled_at(self, parameter: str | None) -> tuple[Frame, ...]:
        """The user's lines down to a call that filled a parameter after its module's construction; empty for none."""
        part, name = self.part(parameter)
        if part is None:
            return ()
        chain = self.anatomy.chain(part.filled_at.get(name, -1))
        return chain if chain != self.anatomy.chain(part.made_at) else ()

    def lines_of(self, layer: Layer) -> tuple[Frame, ...]:
        """Where a layer was made, else where it is called."""
        return self.made_at(layer.weight) or self.anatomy.chain(self.anatomy.ops[layer.index].chain)


_graphs: WeakKeyDictionary[Recording, list[Graph]] = WeakKeyDictionary()


def graphs_of(recording: Recording) -> list[Graph]:
    """The graph of each anatomy of a run, in their order; built once for all rules."""
    anatomies = recording.all(Anatomy)
    known = _graphs.get(recording)
    if known is None or len(known) != len(anatomies):
        known = _graphs[recording] = [Graph(anatomy) for anatomy in anatomies]
    return known
