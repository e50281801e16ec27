"""Products and differences in a loss that are told by the names they use."""

from __future__ import annotations

from pathlib import Path

import pytest

from unstuck.program.objective_lines import rewarded_lines, swapped_triplet_lines


def written(folder: Path, text: str) -> str:
    file = folder / "program.py"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize(
    "text",
    [
        "loss = (log_probs * advantages.detach()).mean()",
        "losses.append(log_prob * R)",
        "loss = torch.min(ratio * adv, clipped)",
        "loss = (dist.log_prob(action) * self.returns).sum()",
    ],
)
def test_a_gain_is_found(tmp_path: Path, text: str) -> None:
    assert rewarded_lines(written(tmp_path, text)) == [(1, 1)]


@pytest.mark.parametrize(
    "text",
    [
        "loss = (-log_prob * reward).mean()",
        "loss = (log_prob * cost).mean()",
        "advantage = values - returns\nloss = (log_prob * advantage).mean()",
        "reward = -distance\nloss = (log_prob * reward).mean()",
        "profit = (weights * returns).sum()",
    ],
)
def test_what_may_be_turned_is_left_alone(tmp_path: Path, text: str) -> None:
    assert rewarded_lines(written(tmp_path, text)) == []


def test_a_hinge_over_swapped_distances_is_found(tmp_path: Path) -> None:
    text = "a = F.relu(neg_dist - pos_dist + margin)\nb = torch.clamp(d_an - d_ap + 1, min=0)"
    assert swapped_triplet_lines(written(tmp_path, text)) == [(1, 1), (2, 2)]


def test_a_hinge_over_similarities_or_the_right_way_round_is_left_alone(tmp_path: Path) -> None:
    text = "a = F.relu(pos_dist - neg_dist + margin)\nb = F.relu(neg_sim - pos_sim + margin)"
    assert swapped_triplet_lines(written(tmp_path, text)) == []
