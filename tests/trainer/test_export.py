"""A module's ways out of the training: printing, gathering, ONNX, TorchScript."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import unstuck
from tests.trainer.side_by_side import OURS, THEIRS, Library, base_module, loader, run

pytestmark = [
    pytest.mark.filterwarnings("ignore::unstuck.messages.PossibleUserWarning"),
    # torch's: TorchScript is deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


class Net(unstuck.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.save_hyperparameters({"width": 4})
        self.net = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
        self.net[2].eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.net(x))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.log("loss", 1.0)
        return self(batch[0]).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trained() -> Net:
    torch.manual_seed(0)
    module = Net()
    run(OURS, lambda library: module, max_epochs=1)
    return module


@pytest.mark.parametrize("method", ["script", "trace"])
@pytest.mark.parametrize("after_a_fit", [True, False])
def test_torchscript(method: str, after_a_fit: bool, tmp_path: Path) -> None:
    module = trained() if after_a_fit else Net()
    module.net.train()
    module.net[2].eval()
    module.example_input_array = torch.randn(3, 8)
    trainer = module._trainer
    script = module.to_torchscript(tmp_path / "net.pt", method)
    loaded = torch.jit.load(tmp_path / "net.pt")
    x = torch.randn(5, 8)
    modes = [child.training for child in module.modules()]
    assert modes == [True, True, True, True, False]
    assert module._trainer is trainer
    module.eval()
    assert torch.equal(script(x), module(x)) and torch.equal(loaded(x), module(x))
    assert not script.training


def test_torchscript_refuses() -> None:
    with pytest.raises(ValueError, match="example_input_array"):
        Net().to_torchscript(method="trace")
    with pytest.raises(ValueError, match="'script' or 'trace'"):
        Net().to_torchscript(method="draw")


def test_onnx(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    from onnx.reference import ReferenceEvaluator

    module = trained()
    x = torch.randn(3, 8)
    module.to_onnx(tmp_path / "net.onnx", x)
    module.eval()
    (output,) = ReferenceEvaluator(onnx.load(tmp_path / "net.onnx")).run(None, {"x": x.numpy()})
    assert torch.allclose(torch.from_numpy(output), module(x), atol=1e-5)
    module.example_input_array = x
    assert module.to_onnx() is not None
    with pytest.raises(ValueError, match="example_input_array"):
        Net().to_onnx()


def test_onnx_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"onnx and onnxscript.*unstuck\[onnx\]"):
        Net().to_onnx()


def test_gathering_in_one_process_is_lightnings() -> None:
    items = (1, 2.5, True, torch.ones(2), {"a": [1, torch.zeros(1)]}, "x", None)
    found = []
    for library in (OURS, THEIRS):

        def make(library: Library) -> Any:
            class Gathering(base_module(library)):  # type: ignore[misc]
                def on_train_start(self) -> None:
                    self.gathered = [self.all_gather(item) for item in items]

            return Gathering()

        def use(trainer: Any, module: Any) -> Any:
            trainer.fit(module, loader())
            return [repr(item) + str(getattr(item, "dtype", "")) for item in module.gathered]

        found.append(run(library, make, use=use, max_epochs=1).result)
    assert found[0] == found[1]


@pytest.mark.parametrize("bar", [True, False])
def test_prints_as_the_builtin_function_does(bar: bool, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for library in (OURS, THEIRS):

        class Talking(base_module(library)):  # type: ignore[misc]
            def on_train_start(self) -> None:
                self.print("hello", [1, {"a": torch.ones(1)}], "[bold]markup[/bold]", sep="|", end="!\n", flush=True)
                self.trainer.print("[red]there", file=sys.stdout)

        run(library, lambda _, module=Talking: module(), max_epochs=1, enable_progress_bar=bar)
        printed.append([line for line in capsys.readouterr().out.splitlines() if "hello" in line or "there" in line])
    assert printed[0] == printed[1] == ["hello|[1, {'a': tensor([1.])}]|[bold]markup[/bold]!", "[red]there"]
