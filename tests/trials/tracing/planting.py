"""Random small programs with one bad operation at a place and a sample that are known, and healthy ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

INF = float("inf")


@dataclass(frozen=True)
class Plant:
    """A bad operation: ``prepare`` says what it meets at the bad sample, ``apply`` is the line that must be named."""

    op: str
    prepare: str
    apply: Callable[[Tensor], Tensor]
    phase: str = "forward"
    sample: bool = True

    @property
    def line(self) -> int:
        return self.apply.__code__.co_firstlineno


class OwnSqrt(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sqrt()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / x.sqrt().mul(2)


def mask_rows(x: Tensor) -> Tensor:
    """-inf wherever x is 0."""
    return x.masked_fill(x == 0, -INF)


FORWARD = [
    Plant("log", "zero", lambda x: torch.log(x)),
    Plant("log", "negative", lambda x: x.log()),
    Plant("log2", "zero", lambda x: torch.log2(x)),
    Plant("log10", "zero", lambda x: torch.log10(x)),
    Plant("log1p", "minus one", lambda x: torch.log1p(x)),
    Plant("sqrt", "negative", lambda x: x.sqrt()),
    Plant("rsqrt", "zero", lambda x: x.rsqrt()),
    Plant("reciprocal", "zero", lambda x: x.reciprocal()),
    Plant("reciprocal", "zero", lambda x: 1 / x),
    Plant("div", "zero", lambda x: (x + 1) / x),
    Plant("div", "zero", lambda x: x / x),
    Plant("div", "zero", lambda x: x / x.sum(-1, keepdim=True)),
    Plant("div", "zero", lambda x: x.div(x.norm(dim=-1, keepdim=True))),
    Plant("div", "zero", lambda x: F.normalize(x, dim=-1, eps=0.0)),
    Plant("pow", "zero", lambda x: x**-1.5),
    Plant("pow", "negative", lambda x: x.pow(0.5)),
    Plant("exp", "thousand", lambda x: torch.exp(x)),
    Plant("exp", "thousand", lambda x: x.clone().exp_()),
    Plant("expm1", "thousand", lambda x: torch.expm1(x)),
    Plant("sinh", "thousand", lambda x: torch.sinh(x)),
    Plant("cosh", "thousand", lambda x: torch.cosh(x)),
    Plant("acos", "two", lambda x: torch.acos(x)),
    Plant("asin", "two", lambda x: torch.asin(x)),
    Plant("acosh", "zero", lambda x: torch.acosh(x + 0.75 * (x > 0))),
    Plant("atanh", "one", lambda x: torch.atanh(x)),
    Plant("lgamma", "zero", lambda x: torch.lgamma(x)),
    Plant("digamma", "zero", lambda x: torch.digamma(x)),
    Plant("logit", "zero", lambda x: torch.logit(x)),
    Plant("erfinv", "one", lambda x: torch.erfinv(x)),
    Plant("mul", "huge", lambda x: x * x),
    Plant("pow", "huge", lambda x: x.square()),
    Plant("add", "maximum", lambda x: x + x),
    Plant("sub", "maximum", lambda x: -x - x),
    Plant("sub", "zero", lambda x: mask_rows(x) - mask_rows(x)),
    Plant("softmax", "zero", lambda x: mask_rows(x).softmax(-1)),
    Plant("log_softmax", "zero", lambda x: F.log_softmax(mask_rows(x), dim=-1)),
    Plant("mul", "zero", lambda x: x * torch.full_like(x, INF).masked_fill(x != 0, 1.0)),
    Plant("mul", "zero", lambda x: x * torch.where(x == 0, INF, 1.0)),
    Plant("std", "zero", lambda x: x[..., :1].std(-1), sample=False),
    Plant("mean", "zero", lambda x: x[x > 9].mean(), sample=False),
    Plant("var", "zero", lambda x: x[..., :1].var(-1), sample=False),
    Plant("cumprod", "huge", lambda x: x.cumprod(-1)),
    Plant("prod", "huge", lambda x: x.prod(-1)),
    Plant("sum", "maximum", lambda x: x.sum(-1)),
    Plant("cumsum", "maximum", lambda x: x.cumsum(-1)),
    Plant("linalg_vector_norm", "huge", lambda x: x.norm(dim=-1)),
    Plant("mm", "maximum", lambda x: x.flatten(0, -2) @ torch.ones(x.shape[-1], 3)),
    Plant("addmm", "maximum", lambda x: F.linear(x.flatten(0, -2), torch.ones(2, x.shape[-1]), torch.zeros(2))),
    Plant(
        "bmm",
        "maximum",
        lambda x: torch.bmm(x.unsqueeze(-2).flatten(0, -3), x.new_ones(x[..., 0].numel(), x.shape[-1], 2)),
    ),
    Plant("mm", "thousand", lambda x: (x.flatten(0, -2).half() @ torch.full((x.shape[-1], 3), 50.0).half()).float()),
    Plant("mul", "thousand", lambda x: (x.half() * x.half()).float()),
    Plant("exp", "thousand", lambda x: x.half().exp().float()),
    Plant("to_copy", "huge", lambda x: x.half().float()),
    Plant("log", "zero", lambda x: x.bfloat16().log().float()),
    Plant("log", "one", lambda x: torch.log(1 - x.clamp(1e-8, 1 - 1e-8))),
    Plant("remainder", "zero", lambda x: torch.remainder(x + 1, x)),
    Plant("fmod", "zero", lambda x: torch.fmod(x + 1, x)),
    Plant("xlogy", "zero", lambda x: torch.xlogy(x + 1, x)),
    Plant("layer_norm", "zero", lambda x: F.layer_norm(x, x.shape[-1:], eps=0.0)),
    Plant("linalg_inv_ex", "zero", lambda x: torch.linalg.inv_ex(torch.diag_embed(x))[0].sum(-1)),
    Plant("addcdiv", "zero", lambda x: torch.addcdiv(x, x + 1, x)),
    Plant("float_power", "zero", lambda x: torch.pow(x, x - 1)),
    Plant("logsumexp", "maximum", lambda x: torch.logsumexp(torch.stack([x, x * 1.2]), 0)),
    Plant("tan", "zero", lambda x: torch.tan(x) / x),
    Plant("log", "zero", lambda x: torch.where(x > 5, 0.0, torch.log(x))),
]

_RENAMED = {"float_power": "pow", "tan": "div"}
FORWARD = [
    Plant(_RENAMED.get(plant.op, plant.op), plant.prepare, plant.apply, plant.phase, plant.sample)
    for plant in FORWARD
    if plant.op != "logsumexp"
]

BACKWARD = [
    Plant("sqrt", "zero", lambda x: x.sqrt()),
    Plant("sqrt", "zero", lambda x: x.clone().sqrt_()),
    Plant("pow", "zero", lambda x: x**0.5),
    Plant("pow", "zero", lambda x: torch.pow(x, 0.3)),
    Plant("acos", "one", lambda x: torch.acos(x)),
    Plant("asin", "one", lambda x: torch.asin(x)),
    Plant("acosh", "one", lambda x: torch.acosh(x + (x < 1))),
    Plant("log", "zero", lambda x: torch.where(x > 0, torch.log(x), 0.0)),
    Plant("log", "zero", lambda x: x.log().masked_fill(x == 0, 0.0)),
    Plant("reciprocal", "zero", lambda x: torch.where(x == 0, 0.0, 1 / x)),
    Plant("div", "zero", lambda x: torch.where(x == 0, 0.0, (x + 1) / x)),
    Plant("rsqrt", "zero", lambda x: x.rsqrt().masked_fill(x == 0, 1.0)),
    Plant("sqrt", "negative", lambda x: torch.where(x < 0, 0.0, x.sqrt())),
    Plant("log1p", "minus one", lambda x: torch.log1p(x).nan_to_num(0.0, 0.0, 0.0)),
    Plant("logsumexp", "zero", lambda x: torch.logsumexp(x + torch.where(x == 0, -INF, 0.0), -1).clamp_min(-9)),
    Plant("div", "zero", lambda x: OwnSqrt.apply(x)),
    Plant("exp", "thousand", lambda x: torch.where(x > 9, 0.0, x.exp())),
    Plant("sqrt", "zero", lambda x: x.bfloat16().sqrt().float()),
    Plant("linalg_eigh", "zero", lambda x: torch.linalg.eigh(torch.diag_embed(x))[1].abs().sum(-1)),
]
BACKWARD = [Plant(plant.op, plant.prepare, plant.apply, "backward", plant.sample) for plant in BACKWARD]
OWN_BACKWARD_LINE = OwnSqrt.backward.__code__.co_firstlineno + 3


def prepared(kind: str, h: Tensor, gate: Tensor) -> Tensor:
    """Harmless numbers of (0.25, 0.75), and at the rows where ``gate`` is 0 the ones that ``kind`` names."""
    safe = torch.sigmoid(h) * 0.5 + 0.25
    open_, shut = gate.unsqueeze(-1), 1 - gate.unsqueeze(-1)
    if kind == "zero":
        return safe * open_
    value = {"negative": -2.0, "thousand": 1e3, "two": 2.0, "huge": 1e30, "maximum": 3e38}
    if kind in value:
        return safe + shut * value[kind]
    return safe * open_ + shut * {"one": 1.0, "minus one": -1.0}[kind]


class Block(nn.Module):
    """A residual block of a random kind; finite in, finite out."""

    def __init__(self, width: int, rng: random.Random) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.kind = rng.choice(
            [
                "relu",
                "gelu",
                "inplace",
                "attention",
                "masked",
                "nanmean",
                "where",
                "lse",
                "half",
                "gated",
                "cat",
                "minimum",
            ]
        )
        self.register_buffer("best", torch.full((width,), INF))

    def forward(self, x: Tensor) -> Tensor:
        h = self.inner(self.norm(x))
        if self.kind == "relu":
            h = F.relu(h)
        elif self.kind == "gelu":
            h = F.gelu(h)
        elif self.kind == "inplace":
            h = h.clone()
            h[..., 1:] *= 0.5
            h[..., 0].add_(1.0)
            h.tanh_()
        elif self.kind == "attention":
            score = h.unsqueeze(-1) * h.unsqueeze(-2)
            future = torch.full(score.shape[-2:], -INF).triu(1)
            h = ((score + future).softmax(-1) @ h.unsqueeze(-1)).squeeze(-1)
        elif self.kind == "masked":
            h = h.masked_fill(torch.arange(h.shape[-1]) == 0, -INF).softmax(-1)
        elif self.kind == "nanmean":
            holes = torch.where(h > 0, h, float("nan"))
            h = h + torch.nan_to_num(torch.nanmean(holes, -1, keepdim=True).detach())
        elif self.kind == "where":
            h = torch.where(h.detach() > 0, h, h.detach().clamp_min(0).log()).clamp_min(-3)
            h = torch.where(h == -3, torch.zeros_like(h), h)
        elif self.kind == "lse":
            forbidden = torch.zeros(h.shape[-1]).index_fill(0, torch.tensor([0]), -INF)
            h = h - torch.logsumexp(h + forbidden, -1, keepdim=True)
        elif self.kind == "half":
            h = (h.bfloat16() @ torch.eye(h.shape[-1]).bfloat16()).float()
        elif self.kind == "gated":
            first, second = h.chunk(2, -1)
            h = torch.cat([first * torch.sigmoid(second), second], -1)
        elif self.kind == "cat":
            h = torch.cat([h, h.flip(-1)], -1)[..., ::2]
        else:
            h = torch.minimum(h, self.best)
        return x + 0.5 * h


class Planted(nn.Module):
    """The bad operation in a module of its own."""

    def __init__(self, plant: Plant) -> None:
        super().__init__()
        self.plant = plant

    def forward(self, x: Tensor) -> Tensor:
        return self.plant.apply(x)


class Program:
    """One random training step.

    Args:
        seed: everything follows from it.
        plant: the bad operation, None for a healthy program.
    """

    def __init__(self, seed: int, plant: Plant | None) -> None:
        rng = random.Random(seed)
        torch.manual_seed(seed)
        self.rng_seed = seed
        self.plant = plant
        self.size, self.length, self.width = rng.randint(3, 7), rng.randint(1, 3), rng.choice([2, 4, 6])
        self.sample = rng.randrange(self.size)
        gate = torch.ones(self.size, self.length)
        if plant is not None:
            gate[self.sample, rng.randrange(self.length)] = 0.0
        self.tokens = rng.random() < 0.3
        data = (
            torch.randint(0, 5, (self.size, self.length))
            if self.tokens
            else torch.randn(self.size, self.length, self.width)
        )
        self.batch = {"x": data, "extra": [gate, torch.rand(self.size)]}
        depth = rng.randint(2, 5)
        self.model = nn.ModuleDict(
            {
                "embed": nn.Embedding(5, self.width) if self.tokens else nn.Linear(self.width, self.width),
                "before": nn.ModuleList(Block(self.width, rng) for _ in range(depth)),
                "after": nn.ModuleList(Block(self.width, rng) for _ in range(rng.randint(0, 2))),
                "head": nn.Linear(self.width, 1),
            }
        )
        self.layout = rng.choice(
            ["plain", "flat", "permuted", "transposed", "subset", "halves", "reversed", "scattered"]
        )
        self.join = rng.choice(["add", "mul", "cat", "mean", "slice", "matmul", "stack", "index_add"])
        self.wrapping = rng.choice(["none", "none", "module", "checkpoint", "reentrant"])
        if self.wrapping == "module" and plant is not None:
            self.model["planted"] = nn.Sequential(nn.Identity(), Planted(plant))
        self.order = torch.randperm(self.size, generator=torch.Generator().manual_seed(seed))
        self.reduction = rng.choice(["mean", "sum", "square", "weighted"])

    def arranged(self, h: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
        if self.layout == "flat":
            return h.reshape(-1, self.width), gate.flatten()
        if self.layout == "permuted":
            return h[self.order], gate[self.order]
        if self.layout == "transposed":
            return h.transpose(0, 1), gate.t()
        if self.layout == "subset":
            keep = torch.arange(self.size) != (self.sample + 1) % self.size
            return h[keep], gate[keep]
        if self.layout == "halves":
            first, second = h.split([1, self.size - 1])
            return torch.cat([second, first]), torch.cat([gate[1:], gate[:1]])
        if self.layout == "reversed":
            return h.flip(0).contiguous(), gate.flip(0)
        if self.layout == "scattered":
            out = torch.zeros_like(h)
            out[self.order] = h
            marks = torch.ones_like(gate)
            for place in range(self.size):
                marks[self.order[place]] = gate[place]
            return out, marks
        return h, gate

    def joined(self, h: Tensor, y: Tensor) -> Tensor:
        if y.dim() == 0:
            return h + y
        if y.shape[:-1] != h.shape[:-1]:
            y = y.reshape(*h.shape[:-1], -1)
        if y.shape[-1] != h.shape[-1]:
            y = y.sum(-1, keepdim=True)
        if self.join == "mul":
            return h * (1 + y)
        if self.join == "cat":
            return torch.cat([h, y], -1)[..., -self.width :]
        if self.join == "mean":
            return h + y.mean(-1, keepdim=True)
        if self.join == "slice":
            h = h.clone()
            h[..., -1:] = y[..., -1:]
            return h
        if self.join == "matmul":
            return h + y.expand_as(h) @ torch.ones(self.width, self.width)
        if self.join == "stack":
            return torch.stack([h, y.expand_as(h)]).sum(0)
        if self.join == "index_add":
            return h.index_add(0, torch.arange(h.shape[0]), y.expand_as(h))
        return h + y

    def bad(self, x: Tensor) -> Tensor:
        assert self.plant is not None
        if self.wrapping == "module":
            return self.model["planted"](x)
        if self.wrapping in ("checkpoint", "reentrant"):
            return checkpoint(self.plant.apply, x, use_reentrant=self.wrapping == "reentrant")
        return self.plant.apply(x)

    def step(self) -> Tensor:
        gate = self.batch["extra"][0]
        h = self.model["embed"](self.batch["x"])
        for block in self.model["before"]:
            h = block(h)
        h, gate = self.arranged(h, gate)
        shared = h
        if self.plant is not None:
            # Off the path: a metric that nobody reads, and a bad branch that is taken out again.
            torch.log(gate - gate).mean()
            h = h + torch.nan_to_num((h.detach() - h.detach()).log(), 0.0, 0.0, 0.0)
            h = self.joined(h, self.bad(prepared(self.plant.prepare, h, gate)))
        for block in self.model["after"]:
            h = h + 0.1 * block(shared) if self.plant is not None else block(h)
        out = self.model["head"](h).squeeze(-1)
        if self.reduction == "sum":
            return out.sum()
        if self.reduction == "square":
            return out.square().mean()
        if self.reduction == "weighted":
            return (out * gate.sum().detach()).sum() / gate.numel()
        return out.mean()
