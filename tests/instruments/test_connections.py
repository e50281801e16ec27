"""Which parameters a program has, who holds them, which passes reach them, and whether they move."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from tests.session.watching import watch
from unstuck.record.connections import Connections, ParameterRecord
from unstuck.record.recording import load_recording
from unstuck.session import SessionOptions

LOOP = """
for _ in range(20):
    x = torch.randn(8, 4)
    loss = compute(x)
    opt.zero_grad(); loss.backward(); opt.step()
"""


def record_of(program: str, folder: Path, options: SessionOptions | None = None) -> Connections:
    run = watch(program, folder, options)
    (record,) = run.session.recording.all(Connections)
    return record


def named(record: Connections, path: str) -> ParameterRecord:
    return next(item for item in record.parameters if item.path == path)


def test_held_fed_and_changed(tmp_path: Path) -> None:
    record = record_of(
        """
        model = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4), "frozen": nn.Linear(4, 4)})
        model["frozen"].requires_grad_(False)
        loss_module = nn.Linear(4, 1)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        compute = lambda x: loss_module(model["frozen"](model["used"](x))).pow(2).mean()
        """
        + LOOP.replace("\n", "\n        "),
        tmp_path,
    )
    used, unused, frozen = (named(record, f"{name}.weight") for name in ("used", "unused", "frozen"))
    assert used.fed == used.looks and used.changed and used.held_by == [0] and used.home == "model"
    assert unused.fed == 0 and unused.trained == unused.looks and not unused.changed
    assert frozen.trained == 0 and frozen.last_frozen is not None and frozen.fed == 0
    missing = named(record, "loss_module.weight")
    assert missing.home == "apart" and missing.held_by == [] and missing.fed == missing.looks and not missing.changed
    assert [(item.path, item.on) for item in record.switches] == [("frozen", False)]


def test_hidden_lists_bare_parameters_and_loaded_states(tmp_path: Path) -> None:
    record = record_of(
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first = nn.Linear(4, 4)
                self.rest = {"a": [nn.Linear(4, 4)]}
            def forward(self, x):
                return self.rest["a"][0](self.first(x))
        model = Net()
        model.load_state_dict({key: torch.zeros_like(value) for key, value in model.state_dict().items()})
        weight = nn.Parameter(torch.ones(4))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        compute = lambda x: (model(x) * weight).pow(2).mean()
        """
        + LOOP.replace("\n", "\n        "),
        tmp_path,
    )
    assert named(record, "first.weight").loaded
    hidden = named(record, "rest.a.0.weight")
    assert hidden.home == "hidden" and not hidden.loaded and record.hidden_in["rest.a.0"] == "rest"
    assert named(record, "weight").home == "bare"


def test_saved_and_read_again(tmp_path: Path) -> None:
    program = "model = nn.Linear(4, 1)\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\ncompute = model"
    record = record_of(
        program + "\ncompute = lambda x: model(x).mean()\n" + LOOP, tmp_path, SessionOptions(out=tmp_path / "out")
    )
    assert load_recording(tmp_path / "out" / "recording.jsonl").all(Connections) == [record]


def test_what_a_loop_makes_anew_is_neither_kept_alive_nor_listed_for_ever(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(4, 4)
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            many = nn.ModuleList([nn.Linear(4, 4) for _ in range(40)])
            x = torch.randn(8, 4)
            for layer in many: x = torch.tanh(layer(x))
            loss = model(x).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    last = weakref.ref(run.namespace.pop("many"))
    for name in ("x", "layer", "loss"):
        run.namespace.pop(name)
    gc.collect()
    assert last() is None
    (record,) = run.session.recording.all(Connections)
    assert len(record.parameters) < 40 * 80
    assert record.fleeting and record.fleeting[0].passes > 4
