"""What an anatomy says of small programs of many shapes, and that tracing them changes nothing."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from tests.session.test_no_trace import everything, plain, random_states
from tests.session.watching import Watched, same_state, watch
from unstuck.record.anatomy import Anatomy, Op, Value
from unstuck.trials.anatomy import anatomist

LOADER = """
from torch.utils.data import DataLoader, TensorDataset
data = DataLoader(TensorDataset(torch.randn(40, 6), torch.randint(0, 3, (40,))), batch_size=8)
"""
CLASSIFIER = (
    LOADER
    + """
model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
)
GAN = """
generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
first = torch.optim.SGD(generator.parameters(), lr=0.1)
second = torch.optim.SGD(critic.parameters(), lr=0.1)
for _ in range(4):
    real = torch.randn(8, 4)
    fake = generator(torch.randn(8, 2))
    second.zero_grad()
    (F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()).backward()
    second.step()
    first.zero_grad()
    F.softplus(-critic(fake)).mean().backward()
    first.step()
"""
DICTIONARIES = """
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, i): return {"x": torch.full((3,), float(i)) / 24, "y": torch.tensor(i / 24.0)}
for batch in torch.utils.data.DataLoader(Rows(), batch_size=6):
    optimizer.zero_grad()
    F.mse_loss(model(batch["x"]).squeeze(-1), batch["y"]).backward()
    optimizer.step()
"""
POLICY = """
policy = nn.Linear(4, 2)
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
for _ in range(4):
    logs, rewards = [], []
    state = torch.randn(4)
    for _ in range(5):
        chosen = torch.distributions.Categorical(logits=policy(state))
        action = chosen.sample()
        logs.append(chosen.log_prob(action))
        rewards.append(float(action))
        state = torch.randn(4)
    optimizer.zero_grad()
    (-(torch.stack(logs) * torch.tensor(rewards)).sum()).backward()
    optimizer.step()
"""
RECURRENT = """
layer, head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    x = torch.randn(6, 50, 3)
    states, (last, _) = layer(x)
    optimizer.zero_grad()
    ((head(last[-1]) - 1) ** 2).mean().backward()
    optimizer.step()
"""
PACKED = """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
layer, head = nn.GRU(3, 4, batch_first=True), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(torch.randn(12, 7, 3), torch.randint(1, 8, (12,)), torch.randn(12)), batch_size=6
)
for x, lengths, y in loader:
    states, last = layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    padded, _ = pad_packed_sequence(states, batch_first=True)
    optimizer.zero_grad()
    ((head(last[-1]).squeeze(1) + padded.mean((1, 2)) - y) ** 2).mean().backward()
    optimizer.step()
"""
IN_PLACE = """
model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(5, 4)
    made = torch.zeros(5, 2)
    hidden = model(x)
    made[:, 0] = hidden[:, 0].sigmoid()
    made[:, 1] = hidden[:, 1].tanh()
    optimizer.zero_grad()
    made.pow(2).mean().backward()
    optimizer.step()
"""
RAISING = """
model = nn.Sequential(nn.LSTM(2, 2, batch_first=True))
head = nn.Linear(2, 1)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
for i in range(4):
    try:
        if i % 2 == 0:
            model(torch.randn(2, 3, 5))
    except RuntimeError:
        print("wrong size")
    optimizer.zero_grad()
    head(model(torch.randn(2, 3, 2))[0]).mean().backward()
    optimizer.step()
"""
COUNTING = """
from torch.utils._python_dispatch import TorchDispatchMode
class Count(TorchDispatchMode):
    count = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
mode = Count()
model(torch.ones(2, 3))
with mode:
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(2, 3)).mean().backward()
        optimizer.step()
"""
WORKERS = """
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __len__(self): return 16
    def __getitem__(self, i): return torch.full((3,), float(i)) * 0.1, torch.tensor(float(i % 2))
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(Rows(), batch_size=4, num_workers=1, multiprocessing_context="fork"):
        optimizer.zero_grad()
        ((model(x).squeeze(1) - y) ** 2).mean().backward()
        optimizer.step()
"""
CLOSURE = """
x, y = torch.randn(20, 3), torch.randn(20)
model = nn.Linear(3, 1)
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)
def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(model(x).squeeze(1), y)
    loss.backward()
    return loss
for _ in range(3):
    optimizer.step(closure)
"""
SHAPES = {
    "classifier": CLASSIFIER,
    "gan": GAN,
    "dictionaries": DICTIONARIES,
    "policy": POLICY,
    "recurrent": RECURRENT,
    "packed": PACKED,
    "in place": IN_PLACE,
    "raising": RAISING,
    "counting": COUNTING,
    "workers": WORKERS,
    "closure": CLOSURE,
}


def first(run: Watched) -> Anatomy:
    anatomy = run.session.recording.all(Anatomy)[0]
    assert not anatomy.failures
    return anatomy


def named(anatomy: Anatomy, name: str) -> Op:
    return next(op for op in anatomy.ops if op.name == name)


def test_a_step_is_written_down_with_places_makers_and_marks(tmp_path: Path) -> None:
    run = watch(CLASSIFIER, tmp_path)
    anatomy = first(run)
    assert anatomy.batch_size == 8 and anatomy.whole
    kinds = [mark.kind for mark in anatomy.marks]
    assert kinds[:6] == ["batch", "call", "zero_grad", "backward", "backward_ended", "step"]
    assert [mark.name for mark in anatomy.marks if mark.kind == "batch"] == ["stacked"] * kinds.count("batch")
    entropy, scores = named(anatomy, "nll_loss"), named(anatomy, "log_softmax")
    assert anatomy.chain(entropy.chain)[-1].line == run.line_of("F.cross_entropy")
    assert entropy.measured["logsumexp"] == pytest.approx(0.0, abs=1e-5)
    mark, made = anatomy.losses()[0]
    assert made is not None and anatomy.ops[made] is entropy and mark.value is not None and mark.value.shape == ()
    taken = scores.taken("self")
    assert taken is not None and taken.op is not None and anatomy.ops[taken.op].name == "addmm"
    assert anatomy.ops[taken.op].module == "2" and taken.samples == "apart" and taken.over == (0,)
    assert [part.kind for part in anatomy.parts] == ["Sequential", "Linear", "ReLU", "Linear"]


def test_a_batch_that_is_a_dictionary_is_known_by_its_keys(tmp_path: Path) -> None:
    anatomy = first(watch(DICTIONARIES, tmp_path))
    target = named(anatomy, "mse_loss").taken("target")
    assert target is not None and (target.leaf, target.name, target.over) == ("batch", "['y']", (0,))


def test_both_models_of_a_pair_are_followed(tmp_path: Path) -> None:
    anatomy = first(watch(GAN, tmp_path))
    assert {mark.optimizer for mark in anatomy.marks if mark.kind == "step"} == {0, 1}
    assert {part.path for part in anatomy.parts} == {"generator", "critic"}
    weights = {value.name for op in anatomy.ops for value in op.inputs if value.leaf == "parameter"}
    assert {"generator.weight", "critic.weight"} <= weights


@pytest.mark.parametrize("shape", ["recurrent", "packed"])
def test_a_recurrent_layer_is_one_operation_and_keeps_samples_apart(shape: str, tmp_path: Path) -> None:
    anatomy = first(watch(SHAPES[shape], tmp_path))
    name = "lstm" if shape == "recurrent" else "gru"
    layer = named(anatomy, name)
    assert len(anatomy.ops) < 120
    assert [value.samples for value in layer.outputs] == ["apart"] * len(layer.outputs)
    assert layer.outputs[1].over == (1,)
    assert {value.leaf for value in layer.inputs if value.argument == "weight"} == {"parameter"}
    last = next(op for op in anatomy.ops if op.name == "addmm").taken("mat1")
    assert last is not None and last.op is not None
    before = anatomy.ops[last.op].inputs[0]
    assert before.op is not None and anatomy.ops[before.op] is layer and before.slot == 1


def test_a_time_first_layer_that_is_given_samples_first_mixes_them(tmp_path: Path) -> None:
    program = RECURRENT.replace(", batch_first=True", "").replace("last[-1]", "states[:, -1]")
    layer = named(first(watch(program, tmp_path)), "lstm")
    assert layer.outputs[0].samples == "statistic" and layer.outputs[0].over == ()


def test_what_was_written_in_place_beside_a_view_doesnt_change_its_maker(tmp_path: Path) -> None:
    anatomy = first(watch(IN_PLACE, tmp_path))
    writes = [op for op in anatomy.ops if op.name == "copy"]
    sources: list[Value | None] = [op.taken("src") for op in writes[:2]]
    assert [anatomy.ops[value.op].name for value in sources if value is not None and value.op is not None] == [
        "sigmoid",
        "tanh",
    ]


def test_a_pass_that_is_long_is_traced_to_its_loss_and_one_that_is_too_long_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anatomist, "MOST_OPS", 100)
    program = """
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        h = model(torch.ones(1, 4))
        for _ in range(COUNT):
            h = torch.tanh(h)
        optimizer.zero_grad()
        h.sum().backward()
        optimizer.step()
    """
    anatomy = first(watch(program.replace("COUNT", "150"), tmp_path))
    assert anatomy.losses() and not anatomy.whole
    run = watch(program.replace("COUNT", "400"), tmp_path)
    assert not first(run).losses()
    assert any("too long to be traced" in phrase for phrase in run.verdict.unchecked)


def test_a_compiled_program_is_left_alone(tmp_path: Path) -> None:
    program = CLASSIFIER.replace("for x, y in data", 'model = torch.compile(model, backend="eager")\nfor x, y in data')
    run = watch(program, tmp_path)
    assert not run.session.recording.all(Anatomy)
    assert any("compiles" in phrase for phrase in run.verdict.unchecked)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_traced_run_is_the_plain_run(shape: str, tmp_path: Path) -> None:
    program = textwrap.dedent(SHAPES[shape])
    expected, printed = plain(program, tmp_path)
    states = random_states()
    run = watch(program, tmp_path)
    assert run.session.recording.all(Anatomy) or shape == "counting"
    assert random_states() == states and run.output == printed
    tensors, values = everything(run.namespace)
    wanted, numbers = everything(expected)
    assert set(tensors) == set(wanted) and all(same_state(tensors[key], wanted[key]) for key in wanted)
    numbers.pop("mode.count", None)  # a mode sees what is looked up around it
    assert {key: value for key, value in values.items() if key in numbers} == numbers
    assert not torch._C._len_torch_dispatch_stack()
