"""What a trace names, on small programs of every kind."""

from __future__ import annotations

import copy
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from unstuck.record.origin import Origin
from unstuck.trials.tracing import OpTrace

INF, NAN = float("inf"), float("nan")


def line_of(function: Any, offset: int = 1) -> int:
    return function.__code__.co_firstlineno + offset


def traced(
    loss_of: Any, batch: Any = None, models: dict[str, nn.Module] | None = None, **options: Any
) -> tuple[OpTrace, Tensor]:
    trace = OpTrace(models=models, batch=batch, **options)
    with trace:
        loss = loss_of()
        if loss.requires_grad:
            loss.backward()
    return trace, loss


def loss_origin(loss_of: Any, batch: Any = None, **options: Any) -> Origin:
    trace, loss = traced(loss_of, batch, **options)
    origin = trace.origin_of(loss)
    assert origin is not None
    return origin


def gradient_origin(loss_of: Any, holders: list[Tensor], batch: Any = None, **options: Any) -> Origin:
    trace, loss = traced(loss_of, batch, **options)
    assert trace.origin_of(loss) is None
    origin = trace.origin_of_gradient(*holders)
    assert origin is not None
    return origin


def helper_log(x: Tensor) -> Tensor:
    return torch.log(x)


# ---- what is named in the forward pass


def test_line_of_the_helper_and_chain() -> None:
    x = torch.tensor([1.0, 0.0])
    origin = loss_origin(lambda: helper_log(x).sum(), x)
    assert (origin.op, origin.value, origin.sample) == ("log", "-inf", 1)
    assert origin.chain[-1].line == line_of(helper_log)
    assert origin.chain[-1].function.endswith("helper_log")
    assert origin.inputs[0].offending == 0.0
    assert (origin.inputs[0].low, origin.inputs[0].high) == (0.0, 1.0)


def test_nan_loss_whose_gradients_are_finite() -> None:
    weight = torch.tensor([-1.0, 2.0], requires_grad=True)
    trace, loss = traced(lambda: (weight.detach().log() * 0).sum() + weight.sum())
    assert weight.grad is not None
    assert torch.isfinite(weight.grad).all()
    origin = trace.origin_of(loss)
    assert origin is not None
    assert (origin.op, origin.value, origin.phase) == ("log", "nan", "forward")
    assert origin.inputs[0].offending == -1.0


def test_unintended_infinity_is_blamed_for_the_nan_that_it_becomes() -> None:
    target, p = torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.5, 1.0, 0.25])
    origin = loss_origin(lambda: -((1 - target) * torch.log(1 - p)).mean(), p)
    assert (origin.op, origin.value, origin.sample, origin.from_infinity) == ("log", "-inf", 1, False)


def test_intended_infinities_leave_the_blame_with_what_made_nan() -> None:
    scores = torch.randn(4, 3)
    mask = torch.zeros(4, 3, dtype=torch.bool)
    mask[2] = True
    mask[0, 0] = True
    origin = loss_origin(lambda: scores.masked_fill(mask, -INF).softmax(-1).sum(), (scores, mask))
    assert (origin.op, origin.value, origin.sample, origin.from_infinity) == ("softmax", "nan", 2, True)


@pytest.mark.parametrize("kind", ["buffer", "literal", "addition", "where", "slice", "full", "item"])
def test_every_way_to_put_an_infinity_on_purpose(kind: str) -> None:
    x = torch.randn(3, 2)

    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("ban", torch.tensor([-INF, -INF]))

        def forward(self, x: Tensor) -> Tensor:
            if kind == "buffer":
                y = x + self.ban
            elif kind == "literal":
                y = x + torch.tensor([-INF, -INF])
            elif kind == "addition":
                y = x + float("-inf")
            elif kind == "where":
                y = torch.where(x > 9, x, -INF)
            elif kind == "slice":
                y = x.clone()
                y[:, :] = -INF
            elif kind == "full":
                y = torch.minimum(x, torch.full((2,), INF).neg())
            else:
                y = x.masked_fill(x < 9, -self.ban.abs().max().item())
            return y.softmax(-1).sum()

    model = Masked()
    origin = loss_origin(lambda: model(x), x, models={"model": model})
    assert (origin.op, origin.from_infinity, origin.module) == ("softmax", True, "")


def test_off_the_path_nothing_matters() -> None:
    x = torch.tensor([[0.0, 2.0], [1.0, -1.0], [3.0, 0.5]])

    def loss() -> Tensor:
        torch.log(torch.zeros(3)).sum()
        good = torch.nanmean(torch.where(x < 0, NAN, x))
        kept = torch.where(x > 0, x.log(), 0.0).sum()
        bad = (x[2] - 3.0).reciprocal()
        return good + kept + bad.sum()

    origin = loss_origin(loss, x)
    assert (origin.op, origin.sample) == ("reciprocal", 2)


def test_only_the_rows_on_the_path_count() -> None:
    x = torch.tensor([[1.0], [0.0], [1.0], [0.0]])

    def loss() -> Tensor:
        y = (x @ torch.ones(1, 2)).log()
        return y[torch.tensor([3, 2])].mean()

    assert loss_origin(loss, x).sample == 3


@pytest.mark.parametrize("count", [torch.tensor([3, 0, 2]), torch.tensor([3, 0, 2], dtype=torch.uint8)])
def test_divisor_of_whole_numbers_is_shown(count: Tensor) -> None:
    total = torch.tensor([1.0, 0.0, 2.0], requires_grad=True)
    origin = loss_origin(lambda: (total / count).sum())
    assert (origin.op, origin.value) == ("div", "nan")
    assert [item.dtype for item in origin.inputs] == ["float32", str(count.dtype).removeprefix("torch.")]
    assert [item.offending for item in origin.inputs] == [0.0, 0.0]
    assert (origin.inputs[1].low, origin.inputs[1].high) == (0.0, 3.0)


def test_count_of_nothing_is_shown() -> None:
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    origin = loss_origin(lambda: (values * 0).sum() / (values > 5).sum())
    assert (origin.op, origin.value) == ("div", "nan")
    assert origin.inputs[1].shape == () and origin.inputs[1].offending == 0.0


def test_number_that_went_through_python() -> None:
    x = torch.tensor([1.0, -4.0])

    def loss() -> Tensor:
        scale = x.sqrt().sum().item()
        return (torch.ones(3) * scale).sum()

    origin = loss_origin(loss, x)
    assert (origin.op, origin.sample) == ("sqrt", 1)


def test_writes_through_views_are_followed_by_memory() -> None:
    x = torch.rand(5, 4) + 0.5
    x[3, 2] = 0.0

    def loss() -> Tensor:
        out = torch.zeros(4, 5)
        rows = out.t()
        rows[1:].copy_(x[1:])
        out[2].log_()
        out[:2].fill_(1.0)
        out[3] *= 2
        return out.t().contiguous().view(-1, 2, 2).sum()

    def slices() -> Tensor:
        out = torch.ones(5, 4)
        for i in range(5):
            out[i, 1:] = x[i, 1:]
        out[:, 2] = 1 / out[:, 2]
        return out.mean()

    origin = loss_origin(loss, x)
    assert (origin.op, origin.sample) == ("log", None)  # row 0 of `out`'s third line is no sample's
    assert (loss_origin(slices, x).op, loss_origin(slices, x).sample) == ("reciprocal", 3)


def test_out_argument_and_reused_memory() -> None:
    x = torch.tensor([2.0, 0.0, 1.0])

    def loss() -> Tensor:
        result = torch.empty(3)
        torch.log(torch.zeros(3), out=result)
        torch.reciprocal(x, out=result)
        for _ in range(20):
            torch.log(torch.zeros(3))
        return result.sum()

    origin = loss_origin(loss, x)
    assert (origin.op, origin.sample) == ("reciprocal", 1)


def test_overflow_in_half_precision_names_the_product() -> None:
    model = nn.Linear(4, 3)
    x = torch.ones(6, 4)
    x[4] = 6e4

    def loss() -> Tensor:
        with torch.autocast("cpu", dtype=torch.float16):
            return (model(x) * 1.0).float().sum()

    with torch.no_grad():
        model.weight.fill_(1.0)
    origin = loss_origin(loss, x, models={"net": model})
    assert (origin.op, origin.value, origin.sample, origin.module) == ("addmm", "inf", 4, "")
    assert origin.inputs[0].dtype == "float16"


# ---- what was there before


def test_leaves() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    x = torch.randn(3, 2)
    assert loss_origin(lambda: model(x).sum() / 0, x).op == "div"
    bad = copy.deepcopy(model)
    with torch.no_grad():
        bad[0].weight[1, 0] = NAN
    origin = loss_origin(lambda: bad(x).sum(), x, models={"net": bad})
    assert (origin.leaf, origin.leaf_name, origin.op, origin.module) == ("parameter", "0.weight", None, "0")
    bad = copy.deepcopy(model)
    bad[1].running_mean[0] = NAN
    origin = loss_origin(lambda: bad(x).sum(), x, models={"net": bad, "loss": nn.MSELoss()})
    assert (origin.leaf, origin.leaf_name) == ("buffer", "net.1.running_mean")
    state = torch.tensor([NAN, 1.0])
    origin = loss_origin(lambda: (model(x) + state).sum(), x, models={"net": model})
    assert (origin.leaf, origin.leaf_name, origin.value) == ("constant", None, "nan")


Pair = namedtuple("Pair", "image target")


@pytest.mark.parametrize("value", [NAN, INF])
def test_batch_leaf(value: float) -> None:
    batch = {"pair": Pair(torch.randn(4, 2), torch.randn(4, 1)), "meta": [torch.arange(4)]}
    batch["pair"].target[2] = value
    model = nn.Linear(2, 1)
    origin = loss_origin(lambda: F.mse_loss(model(batch["pair"].image), batch["pair"].target), batch)
    assert (origin.leaf, origin.leaf_name, origin.sample) == ("batch", "['pair'].target", 2)
    assert origin.value == str(value)


def test_infinite_label_that_cancels_out_is_the_batchs() -> None:
    x = torch.tensor([1.0, INF])
    origin = loss_origin(lambda: (x - x.max()).mean(), x)
    assert (origin.leaf, origin.value) == ("batch", "inf")


# ---- the backward pass


def test_infinite_gradient_that_never_becomes_nan() -> None:
    weight = torch.tensor([0.0, 1.0], requires_grad=True)
    x = torch.ones(3, 2)
    origin = gradient_origin(lambda: (x * weight).sum(1).sub(1).abs().sqrt().sum(), [weight], x)
    assert (origin.phase, origin.op, origin.backward_op) == ("backward", "sqrt", "div")
    assert origin.inputs[0].offending == 0.0


def test_backward_names_the_forward_line_module_and_sample() -> None:
    class Head(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (1 - x) ** 0.5

    model = nn.ModuleDict({"scale": nn.Linear(1, 1, bias=False), "head": Head()})
    with torch.no_grad():
        model["scale"].weight.fill_(1.0)
    x = torch.tensor([[0.2], [0.5], [1.0], [0.1]])
    origin = gradient_origin(
        lambda: model["head"](model["scale"](x)).mean(), list(model.parameters()), x, models={"model": model}
    )
    assert (origin.op, origin.module, origin.sample, origin.scalars) == ("pow", "head", 2, (0.5,))
    assert origin.chain[-1].line == line_of(Head.forward)


def test_infinity_of_the_forward_pass_that_a_mask_hid() -> None:
    x = torch.tensor([[1.0], [0.0], [2.0]])
    weight = torch.ones(1, requires_grad=True)

    def loss() -> Tensor:
        y = (x * weight).squeeze(1)
        return torch.where(y > 0, torch.exp(1 / y), 0.0).sum()

    origin = gradient_origin(loss, [weight], x)
    assert (origin.phase, origin.op, origin.sample) == ("backward", "reciprocal", 1)
    assert origin.backward_op is not None


@pytest.mark.parametrize("change", [lambda v: v.sqrt_(), lambda v: v.mul_(2).pow_(0.5), lambda v: v.copy_(v.sqrt())])
def test_in_place_on_a_view(change: Any) -> None:
    x = torch.rand(4, 3) + 0.5
    x[2, 1] = 0
    weight = torch.ones(3, requires_grad=True)

    def loss() -> Tensor:
        y = x * weight * 1.0
        change(y[1:, 1:])
        torch.zeros(3).add_(1)
        return y.sum()

    origin = gradient_origin(loss, [weight], x)
    assert origin.op in ("sqrt", "pow")
    assert (origin.sample, origin.chain[-1].line) == (2, line_of(change, 0))


def test_target_that_is_masked() -> None:
    logits = torch.randn(4, 5)
    target = torch.tensor([0, 1, 2, 2])

    def loss() -> Tensor:
        masked = logits.masked_fill(torch.arange(5) == 2, -INF)
        return F.cross_entropy(masked, target)

    origin = loss_origin(loss, (logits, target))
    assert (origin.op, origin.value, origin.sample, origin.scalars) == ("masked_fill", "-inf", 2, (-INF,))


def test_ignored_targets_are_off_the_path() -> None:
    logits = torch.randn(4, 5)
    logits[[1, 3]] = 3e38

    def loss() -> Tensor:
        return F.cross_entropy(logits * 2, torch.tensor([0, -100, 2, 3]))

    origin = loss_origin(loss, logits)
    assert (origin.op, origin.sample) == ("mul", 3)


def test_logsumexp_over_nothing() -> None:
    score = torch.zeros(3, 2, requires_grad=True)
    ban = torch.zeros(3, 2)
    ban[1] = -INF

    def loss() -> Tensor:
        return torch.where(ban[:, 0] < 0, 0.0, torch.logsumexp(score + ban, 1)).sum()

    origin = gradient_origin(loss, [score], ban)
    assert (origin.op, origin.sample, origin.value, origin.from_infinity) == ("logsumexp", 1, "nan", True)


def test_gradients_that_overflow_in_their_sum() -> None:
    weight = torch.tensor([0.1, 0.2], requires_grad=True)
    origin = gradient_origin(lambda: (weight * 2e38).sum() + (weight * 2.5e38).sum(), [weight])
    assert (origin.phase, origin.value, origin.backward_op) == ("backward", "inf", "add")


def test_gradient_added_to_an_earlier_one() -> None:
    weight = torch.ones(2, requires_grad=True)
    weight.grad = torch.full((2,), 3e38)
    origin = gradient_origin(lambda: (weight * 1e38).sum(), [weight])
    assert (origin.phase, origin.value, origin.backward_op) == ("backward", "inf", "add")


class Halver(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x / 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient * (x / x) / 2


def test_own_backward() -> None:
    x = torch.tensor([[1.0], [0.0]])
    weight = torch.ones(1, requires_grad=True)
    origin = gradient_origin(lambda: Halver.apply(x * weight).sum(), [weight], x)
    assert (origin.phase, origin.op, origin.sample) == ("backward", "div", 1)
    assert origin.chain[-1].line == line_of(Halver.backward, 3)


def test_hook_on_a_gradient() -> None:
    weight = torch.ones(3, requires_grad=True)

    def spoil(gradient: Tensor) -> Tensor:
        return gradient / (gradient - gradient)

    def loss() -> Tensor:
        y = weight * 2
        y.register_hook(spoil)
        return y.sum()

    origin = gradient_origin(loss, [weight])
    assert (origin.phase, origin.op) == ("backward", "div")
    assert origin.chain[-1].line == line_of(spoil)


class Root(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).abs().sqrt()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed(reentrant: bool) -> None:
    model = Root()
    x = torch.rand(4, 2)
    x[3] = 0
    inputs = x.clone().requires_grad_()

    def loss() -> Tensor:
        return checkpoint(model, inputs, use_reentrant=reentrant).sum()

    origin = gradient_origin(loss, list(model.parameters()), inputs, models={"m": model})
    assert (origin.phase, origin.op, origin.module, origin.sample) == ("backward", "sqrt", "", 3)
    assert origin.chain[-1].line == line_of(Root.forward)


def test_second_derivative() -> None:
    model = nn.Linear(2, 1, bias=False)
    x = torch.rand(3, 2)

    def loss() -> Tensor:
        inputs = x.clone().requires_grad_()
        y = model(inputs)
        (slope,) = torch.autograd.grad((y - y.detach()).pow(2).sum(), inputs, create_graph=True)
        return slope.pow(2).sum(1).sqrt().sum()

    origin = gradient_origin(loss, list(model.parameters()), x)
    assert (origin.phase, origin.op) == ("backward", "sqrt")


def test_two_losses_and_retained_graph() -> None:
    weight = torch.tensor([0.0, 1.0], requires_grad=True)
    trace = OpTrace()
    with trace:
        y = weight * 1.0
        y.square().sum().backward(retain_graph=True)
        assert trace.origin_of_gradient(weight) is None
        y.sqrt().sum().backward()
        origin = trace.origin_of_gradient(weight)
    assert origin is not None
    assert origin.op == "sqrt"


def test_compiled_model_in_eager_stance() -> None:
    model = Root()
    compiled = torch.compile(model, backend="aot_eager")
    x = torch.rand(4, 2)
    compiled(x).sum().backward()
    model.zero_grad()
    x[2] = 0
    with torch.compiler.set_stance("force_eager"):
        origin = gradient_origin(lambda: compiled(x).sum(), list(model.parameters()), x, models={"net": compiled})
    assert (origin.op, origin.module, origin.sample) == ("sqrt", "", 2)
    assert origin.chain[-1].line == line_of(Root.forward)


def test_sparse_gradient() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    with torch.no_grad():
        table.weight[3] = 0
    words = torch.tensor([[1, 2], [3, 4]])
    origin = gradient_origin(lambda: table(words).abs().sqrt().sum(), list(table.parameters()), words)
    assert (origin.op, origin.sample) == ("sqrt", 1)


def test_optimizer_update() -> None:
    model = nn.Linear(2, 1).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    trace = OpTrace(models={"model": model})
    with trace:
        optimizer.step()
    origin = trace.origin_of(*model.parameters())
    assert origin is not None
    assert (origin.op, origin.value) == ("addcdiv", "nan")


# ---- the sample


def sample_of(loss_of: Any, batch: Any, **options: Any) -> int | None:
    return loss_origin(loss_of, batch, **options).sample


@pytest.mark.parametrize(
    "body",
    [
        nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 1, 1)),
        nn.Sequential(nn.Flatten(2), nn.LSTM(16, 4, batch_first=True)),
        nn.Sequential(nn.Flatten(2), nn.GRU(16, 4)),
        nn.Sequential(nn.Flatten(2), nn.TransformerEncoderLayer(16, 2, 8, batch_first=True)),
        nn.Sequential(nn.GroupNorm(1, 1), nn.Upsample(scale_factor=2), nn.Unfold(2), nn.Linear(49, 3), nn.GELU()),
        nn.Sequential(nn.Flatten(1), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Unflatten(1, (4, 2)), nn.LayerNorm(2)),
        nn.Sequential(nn.AvgPool2d(2), nn.PixelShuffle(1), nn.ConvTranspose2d(1, 2, 2), nn.InstanceNorm2d(2)),
    ],
    ids=["conv", "lstm", "gru", "transformer", "unfold", "batchnorm", "transposed"],
)
def test_sample_through_layers(body: nn.Module) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(6, 1, 4, 4), torch.ones(6)
    y[4] = 0.0
    model = nn.ModuleList([body])

    def loss() -> Tensor:
        out = body(x)
        out = out[0] if isinstance(out, tuple) else out
        return (out.flatten(1).square().sum(1) / y).mean()

    # A GRU with time first runs over the samples: each state depends on all before.
    expected = (None, None) if isinstance(body[-1], nn.GRU) else (4, 2)
    assert sample_of(loss, (x, y), models={"m": model}) == expected[0]

    def from_x() -> Tensor:
        out = body(x)
        out = out[0] if isinstance(out, tuple) else out
        marked = torch.where((torch.arange(6) == 2).reshape(6, *(1,) * (out.dim() - 1)), out - out, 1.0)
        return marked.log().sum()

    assert sample_of(from_x, x) == expected[1]


def test_smallest_of_several_samples() -> None:
    x = torch.ones(8, 1, 4, 4)
    x[[5, 3]] = 0.0
    assert sample_of(lambda: x.flatten().log().mean(), x) == 3


def test_no_sample_is_guessed() -> None:
    x = torch.randn(5, 3)
    assert sample_of(lambda: (x / (x.sum() - x.sum())).sum(), x) is None
    assert sample_of(lambda: (x[:1] - x[:1]).std() / 0, x[:1].expand(5, 3)) is None
    assert sample_of(lambda: (x[:, None] - x[None]).square().sum(-1).log().sum(), x) is None
    mixed = torch.tensor([1, 2, 3, 4, 0])
    assert sample_of(lambda: ((x + x[mixed]) * 0).log().sum(), x) is None
    assert sample_of(lambda: x.mean(0).sub(x.mean(0)).log().sum(), x) is None


def test_time_first_and_chunks() -> None:
    x = torch.ones(4, 3, 2)
    x[2, 1] = 0
    assert sample_of(lambda: x.transpose(0, 1).reshape(12, 2).log().sum(), x) == 2
    assert sample_of(lambda: torch.stack([part.log().sum(-1) for part in x.unbind(0)]).mean(), x) == 2
    assert sample_of(lambda: torch.cat([p * 2 for p in x.chunk(2)][::-1]).log().mean(), x) == 2
    assert sample_of(lambda: x.permute(2, 0, 1).contiguous().view(2, -1)[:, torch.randperm(12)].log().mean(), x) == 2


def test_table_looked_up_by_labels() -> None:
    table = torch.tensor([1.0, 0.0, 2.0])
    labels = torch.tensor([0, 2, 1, 0])
    assert sample_of(lambda: table[labels].log().mean(), labels) == 2
    assert sample_of(lambda: table.gather(0, labels).log().mean(), labels) == 2
    assert sample_of(lambda: table.index_select(0, labels).log().mean(), labels) == 2
    assert sample_of(lambda: F.embedding(labels, table[:, None]).log().mean(), labels) == 2


# ---- the trace leaves nothing behind


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4)
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, dropout=0.2)
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.rnn(F.relu(self.norm(self.conv(x))).transpose(1, 2))
        h = h + self.attention(h, h, h)[0]
        return self.head(self.drop(h))


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_bit_identical_with_and_without(dtype: torch.dtype | None) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(5, 2, 9)
    twin = copy.deepcopy(model)

    def run(net: Net) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = net(x).float().std() + torch.rand(1).squeeze()
        loss.backward()
        return loss.detach(), torch.get_rng_state()

    loss, state = run(model)
    trace = OpTrace(models={"net": twin}, batch=x)
    with trace:
        loss_traced, state_traced = run(twin)
    assert torch.equal(loss, loss_traced)
    assert torch.equal(state, state_traced)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad)
    for one, other in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(one, other)
    assert trace.origin_of(loss_traced) is None
    assert trace.origin_of_gradient(*twin.parameters()) is None


def test_everything_is_restored_after_an_exception() -> None:
    from torch.nn.modules import module
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    before = (len(module._global_forward_hooks), len(module._global_forward_pre_hooks))

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("no")

    trace = OpTrace()
    with pytest.raises(ValueError, match="no"), trace:
        Fails()(torch.ones(2))
    assert (len(module._global_forward_hooks), len(module._global_forward_pre_hooks)) == before
    assert _get_current_dispatch_mode() is None


def test_names_of_several_models_and_wrappers() -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            return self.module(x)

    class Log(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.log()

    net = Wrapper(nn.Sequential(nn.Identity(), Log()))
    other = nn.Linear(1, 1)
    x = torch.zeros(2, 1)
    assert loss_origin(lambda: net(x).sum(), x, models={"net": net}).module == "1"
    assert loss_origin(lambda: net(x).sum(), x, models={"net": net, "critic": other}).module == "net.1"
    assert loss_origin(lambda: net(x).sum(), x, models={"net": net, "inner": net.module}).module == "1"
    assert loss_origin(lambda: Log()(x).sum(), x, models={"net": net}).module is None


def test_chain_ends_at_the_given_frame() -> None:
    import sys

    x = torch.zeros(1)
    origin = loss_origin(lambda: helper_log(x).sum(), x, stop=sys._getframe())
    assert [frame.function.rsplit(".", 1)[-1] for frame in origin.chain][-1] == "helper_log"
    assert all("test_chain_ends" not in frame.function or "lambda" in frame.function for frame in origin.chain)


def test_what_was_kept_goes_with_the_trace() -> None:
    x = torch.rand(1000)
    trace = OpTrace(batch=x)
    with trace:
        storage = (x * 2).log().untyped_storage()
        y = (x * 2 - x * 2).sqrt()
        probe = torch.multiprocessing.reductions.StorageWeakRef(y.untyped_storage())
        (y.log() * 0).sum()
    del storage, y
    assert not probe.expired()  # log keeps its input, for the sake of a backward incident
    del trace
    assert probe.expired()


def test_memory_of_an_all_finite_step_is_not_held() -> None:
    import gc

    trace = OpTrace(keep_bytes=0)
    with trace:
        y = torch.ones(1000).sqrt() * 2
        storage = y.untyped_storage()
        key = storage.data_ptr()
        assert key
        probe = torch.multiprocessing.reductions.StorageWeakRef(storage)
        del y, storage
        gc.collect()
        assert probe.expired()
