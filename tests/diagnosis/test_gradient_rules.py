"""Which programs get a finding about gradients, clipping or loss scaling, and where; which look-alikes get none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.session.watching import Watched, watch
from unstuck.diagnosis import judge
from unstuck.diagnosis.rules import numerics_scaler_stuck, optim_exploding_gradient
from unstuck.findings import Severity
from unstuck.record.recording import load_recording
from unstuck.session import SessionOptions

PROGRAMS = Path(__file__).parents[1] / "programs"
DIVERGING, HEALTHY = sorted((PROGRAMS / "diverging").glob("*.py")), sorted((PROGRAMS / "healthy").glob("*.py"))
EARLIER = 5
"""Steps before the first non-finite value at which the recording is cut."""

EARLY_ENOUGH = 0.8


def loud(run: Watched) -> list[str]:
    return [item.code for item in run.verdict.findings if item.severity.value in ("error", "warning")]


# -- exploding: programs of their own ---------------------------------------------------------------------------------


def test_divergence_is_named_before_anything_is_non_finite(tmp_path: Path) -> None:
    named = {}
    for file in DIVERGING:
        run = watch(file.read_text(), tmp_path)
        recording = run.session.recording
        steps = [item.step - item.late for item in recording.incidents if item.step is not None]
        assert steps, f"{file.name} doesn't diverge"
        # where the loss has grown from the first step on, a trial has shown that the rate is why
        first = run.verdict.findings[0]
        told = first.symptoms if first.code == "optim.lr-too-high" else loud(run)
        assert "optim.exploding-gradient" in told, file.name
        early = judge(recording.cut(min(steps) - EARLIER))
        named[file.name] = [item.code for item in early] == ["optim.exploding-gradient"]
    assert len(named) == 10
    assert sum(named.values()) >= EARLY_ENOUGH * len(named), named


@pytest.mark.parametrize("file", HEALTHY, ids=lambda file: file.stem)
def test_healthy_programs_get_nothing(file: Path, tmp_path: Path) -> None:
    run = watch(file.read_text(), tmp_path)
    assert run.verdict.findings == ()
    recording = run.session.recording
    steps = recording.facts["steps"]
    for step in range(EARLIER, steps, max(1, steps // 12)):
        assert judge(recording.cut(step)) == [], f"cut at step {step}"


def test_a_finding_names_layer_step_rate_and_line(tmp_path: Path) -> None:
    run = watch((PROGRAMS / "diverging" / "outliers.py").read_text(), tmp_path, SessionOptions(out=tmp_path / "out"))
    finding = run.finding
    assert finding.code == "optim.exploding-gradient"
    # the first outliers are in batch 25; which of the next norms is measured depends on what measuring cost
    assert finding.where.parameter == "weight" and finding.where.step in (25, 26)
    assert finding.where.line == run.line_of("optimizer.step()")
    assert finding.evidence["growth per step"] > 2 and finding.evidence["step over weights"] > 0.05
    assert "clip" in finding.remedy
    # a saved recording is judged the same on another machine
    assert judge(load_recording(tmp_path / "out" / "recording.jsonl"))[0] == finding


def test_a_stack_that_explodes_at_its_first_step(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(32, 32), nn.ReLU())], nn.Linear(32, 1))
        for layer in model[::2]:
            nn.init.normal_(layer.weight, std=1.0)
        opt = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(20):
            loss = F.mse_loss(model(torch.randn(64, 32)), torch.randn(64, 1))
            opt.zero_grad(); loss.backward()
            opt.step()  # HERE
        """,
        tmp_path,
    )
    # the weights that it begins with are the cause, the explosion what follows
    assert loud(run)[0] == "model.bad-init-scale"
    assert "optim.exploding-gradient" in run.finding.symptoms
    (explosion,) = optim_exploding_gradient.rule(run.session.recording)
    assert explosion.where.line == run.line_of("# HERE") and explosion.where.step == 0


def test_weights_that_begin_at_zero_are_no_explosion(tmp_path: Path) -> None:
    run = watch(
        """
        model = nn.Linear(10, 1, bias=False)
        nn.init.constant_(model.weight, 1e-4)
        opt = torch.optim.SGD(model.parameters(), lr=0.5)
        x = torch.randn(64, 10); y = x[:, :1]
        for step in range(20):
            loss = F.mse_loss(model(x), y)
            if step == 3:
                loss = loss + (loss.detach() - loss.detach()).log()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        tmp_path,
    )
    assert loud(run) == ["numerics.nonfinite-forward"]


# -- vanishing --------------------------------------------------------------------------------------------------------

DEEP = """
    layers = [nn.Linear(16, 32), nn.Sigmoid()]
    for _ in range(8):
        layers += [nn.Linear(32, 32), {act}]
    model = nn.Sequential(*layers, nn.Linear(32, 4))
    opt = torch.optim.{opt}
    x = torch.randn(256, 16); y = (x[:, 0] > 0).long() + 2 * (x[:, 1] > 0).long()
    for step in range(150):
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad(); loss.backward(); opt.step()
"""


def test_a_deep_sigmoid_stack_vanishes(tmp_path: Path) -> None:
    run = watch(DEEP.format(act="nn.Sigmoid()", opt="SGD(model.parameters(), lr=0.1)"), tmp_path)
    assert loud(run) == ["optim.vanishing-gradient"]
    finding = run.finding
    assert finding.where.parameter == "0.weight" and finding.where.module == "0"
    assert finding.evidence["factor per layer"] < 0.5 and finding.evidence["layers"] == 10


@pytest.mark.parametrize(
    ("act", "opt"),
    [
        ("nn.ReLU()", "SGD(model.parameters(), lr=0.1)"),
        ("nn.Sigmoid()", "Adam(model.parameters(), lr=0.01)"),
        ("nn.Tanh()", "SGD(model.parameters(), lr=0.1, momentum=0.9)"),
    ],
)
def test_layers_that_move_don_t_vanish(act: str, opt: str, tmp_path: Path) -> None:
    assert loud(watch(DEEP.format(act=act, opt=opt), tmp_path)) == []


def test_a_cliff_is_no_vanishing(tmp_path: Path) -> None:
    program = DEEP.format(act="nn.Tanh()", opt="SGD(model.parameters(), lr=0.001)")
    cut = program.replace("F.cross_entropy(model(x), y)", "F.cross_entropy(tail(head(x) * 1e-9), y)").replace(
        "    opt =", "    head, tail = model[:8], model[8:]\n    opt ="
    )
    assert loud(watch(cut, tmp_path)) == []


# -- clipping ---------------------------------------------------------------------------------------------------------

LOOP = """
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    spare = nn.Linear(8, 1)
    opt = torch.optim.{opt}
    x = torch.randn(512, 8); y = x[:, :1] * 3 + x[:, 1:2]
    given = model.parameters()
    for step in range(80):
        batch = torch.randint(0, 512, (32,))
        {before}
        loss = F.mse_loss(model(x[batch]), y[batch])
        {zero}
        loss.backward()
        {between}
        opt.step()
        {after}
"""


def clipping(tmp_path: Path, between: str = "", before: str = "", after: str = "", **more: str) -> Watched:
    values = {"opt": "SGD(model.parameters(), lr=0.02)", "zero": "opt.zero_grad()", **more}
    return watch(LOOP.format(between=between, before=before, after=after, **values), tmp_path)


CLIP = "nn.utils.clip_grad_norm_(model.parameters(), {})  # HERE"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"after": CLIP.format(0.5)}, "after the step"),
        ({"before": "opt.zero_grad(); " + CLIP.format(0.5), "zero": "pass"}, "before backward"),
        ({"between": "nn.utils.clip_grad_norm_(spare.parameters(), 0.5)  # HERE"}, "no optimizer holds"),
        ({"between": "nn.utils.clip_grad_norm_(given, 0.5)  # HERE"}, "no parameters"),
    ],
)
@pytest.mark.filterwarnings("ignore:`parameters` is an empty generator:UserWarning")
def test_clipping_that_can_t_act(where: dict[str, str], said: str, tmp_path: Path) -> None:
    run = clipping(tmp_path, **where)
    assert loud(run) == ["optim.clip-ineffective"]
    assert said in run.finding.summary
    assert run.finding.where.line == run.line_of("# HERE")


TWO_NETWORKS = """
    maker, critic = nn.Linear(4, 2), nn.Linear(2, 1)
    unused = nn.Linear(2, 1)
    for_maker = torch.optim.SGD(maker.parameters(), lr=0.01)
    for_critic = torch.optim.SGD([*critic.parameters(), *unused.parameters()], lr=0.01)
    for step in range(30):
        made = maker(torch.randn(16, 4))
        for_critic.zero_grad()
        {before}
        (critic(made.detach()) - 5).pow(2).mean().backward()
        {between}
        for_critic.step()
        for_maker.zero_grad()
        (critic(made) + 5).pow(2).mean().backward()
        for_maker.step()
"""


def test_a_pass_for_another_network_does_not_make_clipping_act(tmp_path: Path) -> None:
    clip = "nn.utils.clip_grad_norm_(critic.parameters(), 0.1)  # HERE"
    run = watch(TWO_NETWORKS.format(before=clip, between=""), tmp_path)
    found = [item for item in run.verdict.findings if item.code == "optim.clip-ineffective"]
    assert len(found) == 1 and "before backward" in found[0].summary
    assert found[0].where.line == run.line_of("# HERE")


@pytest.mark.parametrize("which", ["critic", "unused"])
def test_clipping_of_one_of_two_networks_in_time(which: str, tmp_path: Path) -> None:
    clip = f"nn.utils.clip_grad_norm_({which}.parameters(), 0.1)"
    run = watch(TWO_NETWORKS.format(before="", between=clip), tmp_path)
    assert "optim.clip-ineffective" not in loud(run)


def test_clipping_in_vain_explains_the_explosion(tmp_path: Path) -> None:
    program = (PROGRAMS / "diverging" / "outliers.py").read_text()
    step = "        optimizer.step()\n"
    run = watch(program.replace(step, f"{step}        {CLIP.format(1.0)}\n"), tmp_path)
    first, *others = run.verdict.findings
    assert (first.code, first.severity.value) == ("optim.clip-ineffective", "error")
    assert first.where.line == run.line_of("# HERE")
    assert first.symptoms[0] == "optim.exploding-gradient"
    assert [item.code for item in others] == ["numerics.nonfinite-forward"]


def test_what_follows_an_explosion_is_told_too(tmp_path: Path) -> None:
    run = watch((PROGRAMS / "diverging" / "outliers.py").read_text(), tmp_path)
    assert [item.code for item in run.verdict.findings] == ["optim.exploding-gradient", "numerics.nonfinite-forward"]
    assert run.finding.symptoms == ("numerics.nonfinite-forward",)


@pytest.mark.parametrize(
    "where",
    [
        {"between": CLIP.format(0.5)},
        {"after": CLIP.format("float('inf')")},
        {"after": CLIP.format(1e4)},
        {"between": "nn.utils.clip_grad_norm_(model.parameters(), 0.5)", "after": CLIP.format(0.5)},
        {"between": "nn.utils.clip_grad_norm_(model[0].parameters(), 0.5)"},
        {"between": "nn.utils.clip_grad_value_(model.parameters(), 0.1)"},
        # gradients that another function computes
        {
            "zero": "grads = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True); opt.zero_grad()",
            "between": "[setattr(p, 'grad', g) for p, g in zip(model.parameters(), grads)]; " + CLIP.format(0.5),
        },
    ],
)
def test_clipping_that_acts_or_only_measures(where: dict[str, str], tmp_path: Path) -> None:
    assert loud(clipping(tmp_path, **where)) == []


def test_gradients_without_any_backward_call_are_no_reason_to_judge(tmp_path: Path) -> None:
    run = watch(
        """
        from torch.func import functional_call, grad
        model = nn.Linear(4, 1); opt = torch.optim.SGD(model.parameters(), lr=0.05)
        def loss_of(parameters, x):
            return functional_call(model, parameters, (x,)).pow(2).mean()
        for step in range(40):
            found = grad(loss_of)(dict(model.named_parameters()), torch.randn(8, 4) * 30)
            for name, parameter in model.named_parameters():
                parameter.grad = found[name].detach()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            opt.step()
        """,
        tmp_path,
    )
    assert loud(run) == []


@pytest.mark.parametrize("kind", ["clip_grad_norm_", "clip_grad_value_"])
def test_a_limit_far_below_the_usual_norm(kind: str, tmp_path: Path) -> None:
    run = clipping(tmp_path, between=f"nn.utils.{kind}(model.parameters(), 1e-4)  # HERE")
    assert loud(run) == ["optim.clip-too-tight"]
    assert run.finding.where.line == run.line_of("# HERE")
    assert run.finding.evidence["part left"] < 0.01
    assert run.finding.evidence["update over weight"] < 1e-4


@pytest.mark.parametrize(
    "more",
    [
        {"opt": "Adam(model.parameters(), lr=0.01)"},  # doesn't mind the factor
        {"opt": "SGD(model.parameters(), lr=1000.0)"},  # a rate made for the limit
    ],
)
def test_a_tight_limit_that_leaves_large_enough_steps(more: dict[str, str], tmp_path: Path) -> None:
    assert loud(clipping(tmp_path, between=CLIP.format(1e-4), **more)) == []


# -- loss scaling -----------------------------------------------------------------------------------------------------

SCALED = """
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    opt = torch.optim.{opt}
    scaler = torch.amp.GradScaler("cpu"{scaler})
    x = torch.randn(512, 8); y = x[:, :1] * 3 + x[:, 1:2]
    for step in range(60):
        batch = torch.randint(0, 512, (32,))
        with torch.autocast("cpu", dtype=torch.float16, enabled={half}):
            loss = F.mse_loss(model(x[batch]).float(), y[batch])
        {spoil}
        opt.zero_grad()
        scaler.scale(loss).backward()
        {between}
        {step}
"""


def scaled(tmp_path: Path, between: str = "", **more: str) -> Watched:
    values = {
        "opt": "SGD(model.parameters(), lr=0.02)",
        "scaler": "",
        "spoil": "",
        "half": "False",
        "step": "scaler.step(opt); scaler.update()  # STEP",
        **more,
    }
    return watch(SCALED.format(between=between, **values), tmp_path)


def test_clipping_of_scaled_gradients(tmp_path: Path) -> None:
    run = scaled(tmp_path, CLIP.format(1.0))
    assert loud(run) == ["numerics.amp-order"]
    assert run.finding.where.line == run.line_of("# HERE") and run.finding.where.step == 0
    assert run.finding.evidence["scale"] == 65536.0
    assert "unscale_" in run.finding.remedy


def test_steps_past_the_scaler(tmp_path: Path) -> None:
    run = scaled(tmp_path, opt="Adam(model.parameters(), lr=0.01)", step="opt.step()  # STEP")
    assert loud(run) == ["numerics.amp-order"]
    assert run.finding.where.line == run.line_of("# STEP")


@pytest.mark.parametrize(
    "more",
    [
        {"between": "scaler.unscale_(opt); " + CLIP.format(1.0)},
        {"between": CLIP.format("1.0 * scaler.get_scale()")},
        {"between": CLIP.format(1.0), "scaler": ", enabled=False"},
        {"between": CLIP.format(1e9)},
        {"step": "scaler.unscale_(opt); opt.step(); scaler.update()"},
        {
            "between": "for p in model.parameters(): p.grad /= scaler.get_scale()",
            "step": "opt.step()",
        },
    ],
)
def test_the_right_order(more: dict[str, str], tmp_path: Path) -> None:
    assert loud(scaled(tmp_path, **more)) == []


def test_a_scaler_for_one_of_two_optimisers(tmp_path: Path) -> None:
    run = watch(
        """
        a, b = nn.Linear(4, 1), nn.Linear(4, 1)
        for_a, for_b = (torch.optim.SGD(m.parameters(), lr=0.01) for m in (a, b))
        scaler = torch.amp.GradScaler("cpu")
        for step in range(30):
            x = torch.randn(16, 4)
            for_a.zero_grad(); a(x).pow(2).mean().backward()
            nn.utils.clip_grad_norm_(a.parameters(), 0.1); for_a.step()
            for_b.zero_grad(); scaler.scale(b(x).pow(2).mean()).backward()
            scaler.unscale_(for_b); nn.utils.clip_grad_norm_(b.parameters(), 0.1)
            scaler.step(for_b); scaler.update()
        """,
        tmp_path,
    )
    assert loud(run) == []


def test_a_scaler_that_never_finds_its_scale(tmp_path: Path) -> None:
    run = scaled(tmp_path, spoil="loss = loss + 0 * (x[:1] * 1e30).sum().sqrt() * (model[0].weight * 0).sum().sqrt()")
    # what isn't finite at any scale is the cause, and the scaler's skips follow from it
    assert loud(run) == ["numerics.nonfinite-backward"]
    assert run.finding.severity is Severity.ERROR and run.finding.symptoms == ("numerics.scaler-stuck",)
    (finding,) = numerics_scaler_stuck.rule(run.session.recording)
    assert finding.where.line == run.line_of("# STEP") and finding.where.step == 0
    assert finding.evidence["skipped"] == 60 and finding.evidence["scale after it"] < 1.0
    assert "at any scale" in finding.summary and "float32" in finding.remedy


def test_a_scale_that_is_held_says_nothing_about_lower_ones(tmp_path: Path) -> None:
    run = scaled(
        tmp_path,
        scaler=", init_scale=2.0**30",
        half="True",
        step="scaler.step(opt); scaler.update(new_scale=2.0**30)  # STEP",
    )
    assert loud(run) == ["numerics.scaler-stuck"]
    assert run.finding.where.line == run.line_of("# STEP")
    assert "not lowered" in run.finding.summary and "any scale" not in run.finding.summary
    assert "new_scale" in run.finding.remedy


@pytest.mark.parametrize(
    "more",
    [
        {"scaler": ", init_scale=2.0**40", "half": "True"},  # finds its scale after many skips
        {"scaler": ", growth_interval=1", "half": "True"},  # grows again at once
        {"spoil": "loss = loss * (float('inf') if step % 9 == 5 else 1.0)"},  # some bad batches
    ],
)
def test_a_scaler_that_searches(more: dict[str, str], tmp_path: Path) -> None:
    assert loud(scaled(tmp_path, **more)) == []
