"""Progress: what is shown, and how often."""

import inspect
import io
import re
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ProgressBar as ReferenceBar
from lightning.pytorch.callbacks import RichProgressBar as ReferenceRichBar
from rich.console import Console

from unstuck import LightningModule, Trainer
from unstuck.callbacks import ProgressBar, RichProgressBar
from unstuck.callbacks.progress import rich_progress
from unstuck.callbacks.progress.pace import Pace, Stretch, format_duration
from unstuck.callbacks.progress.plain_display import PlainDisplay, progress_line
from unstuck.callbacks.progress.rich_display import RichDisplay
from unstuck.loggers import CSVLogger


class Tiny(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.log("loss", 0.5 + batch_idx, prog_bar=True)
        self.log("hidden", 1.0)
        return self.layer(batch).sum()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        pass

    def predict_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return batch

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Marked(Tiny):
    """Names that rich would read as markup."""

    names = ("[red]loss", "<b>x</b>", "[/bold]", "a]b[c")

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.log_dict(dict.fromkeys(self.names, 1.0), prog_bar=True)
        return self.layer(batch).sum()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log_dict(dict.fromkeys(self.names, 1.0))


class Validating(Tiny):
    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        if dataloader_idx == 0:
            self.log("val", 0.25, prog_bar=True, add_dataloader_idx=False)


def loader(batches: int = 4) -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(torch.ones(batches, 2))


def make_trainer(bar: ProgressBar, **keywords: Any) -> Trainer:
    keywords = {"max_epochs": 2, "logger": False, **keywords}
    return Trainer(
        accelerator="cpu", callbacks=[bar], enable_checkpointing=False, enable_model_summary=False, **keywords
    )


def plain_bar(**keywords: Any) -> tuple[RichProgressBar, io.StringIO]:
    text = io.StringIO()
    return RichProgressBar(console_kwargs={"file": text, "force_terminal": False}, **keywords), text


def terminal_bar(**keywords: Any) -> tuple[RichProgressBar, io.StringIO]:
    text = io.StringIO()
    console = {"file": text, "force_terminal": True, "width": 200, "color_system": None}
    return RichProgressBar(console_kwargs=console, **keywords), text


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing is due at every batch."""
    monkeypatch.setattr(rich_progress, "SHARE", float("inf"))
    for display in (PlainDisplay, RichDisplay):
        monkeypatch.setattr(display, "interval", 0.0)
        monkeypatch.setattr(display, "closing_interval", 0.0)


@pytest.mark.usefixtures("always")
def test_plain_lines_tell_everything() -> None:
    bar, text = plain_bar()
    make_trainer(bar).fit(Validating(), loader(), loader(3))
    lines = [re.sub(r"[\d.e+]+ it/s", "R it/s", line) for line in text.getvalue().splitlines()]
    assert lines[0] == "Sanity Checking  1/2 50%  R it/s  ETA 0:00"
    assert "Epoch 0/1  2/4 50%  R it/s  ETA 0:00  run ETA 0:00  loss=1.5" in lines
    assert "Epoch 1/1  2/4 50%  R it/s  ETA 0:00  loss=1.5  val=0.25" in lines
    assert "Validation  3/3 100%  R it/s  loss=3.5" in lines
    assert lines[-1] == "Epoch 1/1  4/4 100%  R it/s  loss=3.5  val=0.25"
    assert not any("hidden" in line for line in lines)


def test_lines_are_few_but_the_end_is_shown() -> None:
    bar, text = plain_bar()
    make_trainer(bar, max_epochs=20).fit(Validating(), loader(), loader(3))
    lines = text.getvalue().splitlines()
    assert len(lines) < 10
    assert lines[-1].startswith("Epoch 19/19  4/4 100%")


@pytest.mark.usefixtures("always")
def test_bars_in_a_terminal() -> None:
    bar, text = terminal_bar()
    make_trainer(bar).fit(Validating(), loader(), loader(3))
    shown = re.sub(r"\x1b\[[\d?]*[a-zA-Z]", "", text.getvalue())
    for part in (r"Sanity Checking .*1/2", r"Epoch 0/1 .*2/4 .*ETA .* it/s loss=1.5", r"Validation .*3/3"):
        assert re.search(part, shown), part
    last = shown.strip().splitlines()[-1]
    assert re.search(r"Epoch 1/1 .*4/4 .* loss=3.5 val=0.25", last)
    # With the cursor shown again.
    assert text.getvalue().rindex("\x1b[?25h") > text.getvalue().rindex("\x1b[?25l")


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("make_bar", [plain_bar, terminal_bar])
def test_names_are_shown_as_they_are(make_bar: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bar, text = make_bar()
    trainer = make_trainer(bar)
    trainer.fit(Marked(), loader())
    trainer.test(Marked(), loader(2))
    table = capsys.readouterr().err
    for name in Marked.names:
        assert f"{name}=1" in text.getvalue()
        assert f" {name} " in table


@pytest.mark.parametrize("leave", [False, True])
def test_a_bar_of_a_loop_that_was_never_drawn_again_is_taken_away_once(
    leave: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar, text = terminal_bar(leave=leave)
    # Drawing once, for the sanity check, costs so much that nothing is drawn until the end.
    monkeypatch.setattr(rich_progress, "SHARE", 1e-9)
    make_trainer(bar).fit(Validating(), loader(), loader(3))
    assert re.search(r"Epoch 1/1 .*4/4", text.getvalue())
    assert "Validation" not in text.getvalue().split("\x1b[2K")[-1]


def test_an_error_while_drawing_gives_the_terminal_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bar, text = terminal_bar()
    show = RichDisplay.show

    def broken(self: RichDisplay, stretch: Stretch, metrics: Any) -> None:
        show(self, stretch, metrics)
        if stretch.completed:
            raise OSError("no space")

    monkeypatch.setattr(RichDisplay, "show", broken)
    monkeypatch.setattr(rich_progress, "SHARE", float("inf"))
    with pytest.raises(OSError, match="no space"):
        make_trainer(bar).fit(Validating(), loader(), loader(3))
    assert text.getvalue().rindex("\x1b[?25h") > text.getvalue().rindex("\x1b[?25l")


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("leave", [False, True])
def test_bars_of_ended_epochs_stay_if_wanted(leave: bool) -> None:
    bar, text = terminal_bar(leave=leave)
    make_trainer(bar, max_epochs=3).fit(Tiny(), loader())
    final_frame = text.getvalue().split("\x1b[2K")[-3:] if leave else text.getvalue().split("\x1b[2K")[-1:]
    epochs = {match for part in final_frame for match in re.findall(r"Epoch (\d)/2", part)}
    assert epochs == ({"0", "1", "2"} if leave else {"2"})


@pytest.mark.usefixtures("always")
def test_evaluation_and_prediction_have_bars() -> None:
    bar, text = plain_bar()
    trainer = make_trainer(bar)
    trainer.test(Tiny(), loader(2), verbose=False)
    trainer.predict(Tiny(), loader(3))
    trainer.validate(Validating(), [loader(2), loader(1)], verbose=False)
    shown = text.getvalue()
    for part in ("Testing  2/2 100%", "Predicting  3/3 100%", "Validation  2/2", "Validation DataLoader 1  1/1 100%"):
        assert part in shown


@pytest.mark.usefixtures("always")
def test_a_loader_without_length() -> None:
    class Stream(torch.utils.data.IterableDataset[torch.Tensor]):
        def __iter__(self) -> Any:
            return iter(torch.ones(3, 2))

    bar, text = plain_bar()
    make_trainer(bar, max_epochs=1).fit(Tiny(), torch.utils.data.DataLoader(Stream()))
    assert re.search(r"Epoch 0/0  3 batches  [\d.e+]+ it/s  loss=2.5$", text.getvalue().strip())


@pytest.mark.usefixtures("always")
def test_the_version_of_the_logger_is_shown(tmp_path: Any) -> None:
    bar, text = plain_bar()
    make_trainer(bar, logger=CSVLogger(tmp_path, version="long_name"), log_every_n_steps=1).fit(Tiny(), loader())
    assert "v_num=name  loss=3.5" in text.getvalue()


@pytest.mark.parametrize("keywords", [{"refresh_rate": 0}, {}])
def test_no_progress_where_it_is_off(keywords: dict[str, Any]) -> None:
    bar, text = plain_bar(**keywords)
    if not keywords:
        bar.disable()
    assert bar.is_disabled
    make_trainer(bar).fit(Tiny(), loader())
    assert text.getvalue() == ""


@pytest.mark.usefixtures("always")
def test_it_looks_at_the_clock_as_often_as_told() -> None:
    bar, text = plain_bar(refresh_rate=3)
    make_trainer(bar, max_epochs=1).fit(Tiny(), loader(8))
    assert re.findall(r"(\d)/8", text.getvalue()) == ["3", "6", "8"]


def test_drawing_takes_a_small_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, drawn = [0.0], []

    class SlowDisplay:
        interval, closing_interval, draws_at_once = 0.2, 0.0, True

        def show(self, stretch: Stretch, metrics: Any) -> None:
            now[0] += 0.05
            drawn.append(stretch.completed)

    trainer = SimpleNamespace(loggers=[], progress_bar_metrics={}, lightning_module=None)
    monkeypatch.setattr(rich_progress.time, "perf_counter", lambda: now[0])
    bar = RichProgressBar()
    bar._trainer, bar._display = trainer, SlowDisplay()  # type: ignore[assignment]
    bar._begin("train", "Epoch", 100_000)
    for batch_idx in range(100_000):
        now[0] += 0.001
        bar._advance("train", batch_idx)
    assert 0.05 * len(drawn) < 0.01 * now[0]
    assert len(drawn) > 8


def test_an_exception_gives_the_terminal_back() -> None:
    class Failing(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            raise RuntimeError("broken")

    bar, text = terminal_bar()
    with pytest.raises(RuntimeError, match="broken"):
        make_trainer(bar).fit(Failing(), loader())
    assert text.getvalue().rstrip().endswith("\x1b[?25h")
    assert bar._display is None


def test_the_time_of_a_loop_inside_does_not_count() -> None:
    now = [0.0]
    pace = Pace("train", "Epoch 0", 100, epochs_left=2, clock=lambda: now[0])
    now[0], pace.completed = 10.0, 20
    pace.pause()
    now[0] = 1000.0
    assert pace.elapsed() == 10.0
    pace.resume()
    now[0] = 1005.0
    pace.completed = 30
    stretch = pace.stretch()
    assert (stretch.rate, stretch.elapsed, stretch.seconds_left) == (2.0, 15.0, 35.0)
    assert stretch.seconds_left_in_run == 35.0 + 2 * 50.0


def test_a_line_of_unknown_length() -> None:
    stretch = Stretch("train", "Epoch 3", 7, None, 3.5, 2.0, None)
    assert progress_line(stretch, {"loss": 0.123456, "n": 3}, ".4g") == "Epoch 3  7 batches  3.5 it/s  loss=0.1235  n=3"
    assert stretch.seconds_left is None
    assert stretch.seconds_left_in_run is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599, "59:59"), (3600, "1:00:00"), (90061, "25:01:01")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


class Custom(ProgressBar):
    """A bar of the user's own, made with what the base class gives."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def disable(self) -> None:
        self.seen.append("disabled")

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append((batch_idx, self.total_train_batches, self.get_metrics(trainer, pl_module)))

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            self.seen.append(
                (trainer.sanity_checking, self.total_val_batches_current_dataloader, self.total_val_batches)
            )


def test_a_bar_of_the_users_own() -> None:
    bar = Custom()
    with pytest.raises(TypeError, match="Custom"):
        _ = bar.trainer
    make_trainer(bar, max_epochs=1, num_sanity_val_steps=1).fit(Validating(), loader(1), [loader(3), loader(2)])
    assert bar.seen == [
        (True, 1, 5),
        (True, 1, 5),
        (0, 1, {"loss": 0.5}),
        (False, 3, 5),
        (False, 2, 5),
    ]


@pytest.mark.parametrize(("own", "other"), [(ProgressBar, ReferenceBar), (RichProgressBar, ReferenceRichBar)])
def test_the_interface_is_lightnings(own: Any, other: Any) -> None:
    rich_internals = {
        "refresh",
        "val_progress_bar",
        "val_sanity_check_bar",
        "train_progress_bar",
        "test_progress_bar",
    }
    for name in dir(other):
        if name.startswith("_") or name in rich_internals:
            continue
        assert hasattr(own, name), name
        if callable(getattr(other, name)):
            assert list(inspect.signature(getattr(own, name)).parameters) == list(
                inspect.signature(getattr(other, name)).parameters
            ), name
    assert list(inspect.signature(own.__init__).parameters) == list(inspect.signature(other.__init__).parameters)


def test_printing_is_the_programs_own_output(capsys: pytest.CaptureFixture[str]) -> None:
    bar, text = plain_bar()
    bar.print("a", [1], "[bold]", sep="|", end="!\n", flush=True)
    assert (text.getvalue(), capsys.readouterr().out) == ("", "a|[1]|[bold]!\n")
    assert isinstance(bar._console(), Console)


def test_a_hook_costs_almost_nothing_when_nothing_is_drawn() -> None:
    bar, _ = plain_bar()
    bar._paces["train"] = Pace("train", "Epoch", 10)
    bar._next_draw = float("inf")
    best = float("inf")
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(1000):
            bar.on_train_batch_end(None, None, None, None, 0)  # type: ignore[arg-type]
        best = min(best, (time.thread_time() - begin) / 1000)
    assert best < 5e-6
