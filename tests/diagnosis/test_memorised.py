"""Verdicts on overfit tests, by what data and loss allow."""

from __future__ import annotations

import math

import pytest

from unstuck.diagnosis.memorised import judge_memory


def falling(first: float, last: float, count: int) -> list[float]:
    return [first * (last / first) ** (index / (count - 1)) for index in range(count)]


def test_at_the_floor_it_is_memorised() -> None:
    memory = judge_memory(falling(2.3, 0.02, 100), 99, constant=2.3, floor=0.0)
    assert memory.verdict == "memorised"
    assert memory.learnt == pytest.approx(1 - 0.02 / 2.3)


def test_a_floor_above_zero_is_reached_too() -> None:
    memory = judge_memory([2.3, *[0.52] * 60], 60, constant=2.3, floor=0.5)
    assert memory.verdict == "memorised"
    assert "no prediction can score below 0.5" in memory.sentence


def test_a_loss_that_stands_still_above_is_not() -> None:
    memory = judge_memory([2.3] * 100, 99, constant=2.25, floor=0.0)
    assert (memory.verdict, memory.more_steps) == ("not memorised", None)


def test_a_loss_that_still_falls_is_undecided_and_says_how_long() -> None:
    curve = falling(2.0, 0.4, 100)
    memory = judge_memory(curve, 99, constant=2.0, floor=0.0)
    assert memory.verdict == "undecided"
    assert memory.more_steps is not None
    # going on like this, the loss would be 5 % of the constant's after so many more
    rate = math.log(curve[-1] / curve[0]) / 99
    assert memory.more_steps == pytest.approx(math.log(0.1 / 0.4) / rate, rel=0.3)
    assert f"run {memory.more_steps} more steps" in memory.sentence


def test_a_few_steps_are_too_few_to_tell() -> None:
    assert judge_memory([2.0, 1.9, 1.8], 2, constant=2.0, floor=0.0).verdict == "undecided"


def test_every_sample_right_is_enough_short_of_the_floor() -> None:
    curve = [2.3, *[0.4] * 99]
    assert judge_memory(curve, 99, constant=2.3, floor=0.0, accuracy=1.0, attainable=1.0).verdict == "memorised"
    assert judge_memory(curve, 99, constant=2.3, floor=0.0, accuracy=0.9, attainable=1.0).verdict == "not memorised"


def test_evaluation_mode_counts_where_dropout_keeps_the_training_loss_up() -> None:
    memory = judge_memory([2.3, *[0.9] * 99], 99, constant=2.3, floor=0.0, evaluated=0.01)
    assert memory.verdict == "memorised"
    assert "0.01 in evaluation mode" in memory.sentence


def test_where_no_prediction_beats_a_constant_nothing_was_memorised() -> None:
    memory = judge_memory(falling(2.3, 2.29, 100), 99, constant=2.29, floor=2.29)
    assert memory.verdict == "not memorised"
    assert "can score better than a constant" in memory.sentence


def test_a_loss_that_ignores_the_predictions_is_never_memorised() -> None:
    memory = judge_memory([0.0] * 60, 60, constant=0.0, floor=0.0)
    assert memory.verdict == "not memorised"
    assert "or ignores them" in memory.sentence
    assert judge_memory([2.5] * 60, 60, constant=2.5, floor=2.5).verdict == "not memorised"


def test_one_target_for_all_can_be_memorised() -> None:
    assert judge_memory(falling(2.3, 0.001, 50), 49, constant=0.0, floor=0.0).verdict == "memorised"


def test_a_loss_that_is_not_finite_is_not_memorised() -> None:
    assert judge_memory([2.3, float("nan")], 1, constant=2.3, floor=0.0).verdict == "not memorised"


def test_without_bounds_the_course_of_the_loss_is_the_measure() -> None:
    memory = judge_memory(falling(5.0, 0.01, 60), 59)
    assert memory.verdict == "memorised"
    assert "what a constant prediction would score isn't known" in memory.sentence
    assert judge_memory([5.0] * 60, 59).verdict == "not memorised"
    assert judge_memory(falling(5.0, 0.5, 60), 59).more_steps is not None


@pytest.mark.parametrize("end", [3.0, 0.2, -2.0])
def test_a_loss_without_a_known_floor_that_stands_still_is_undecided(end: float) -> None:
    memory = judge_memory([5.0, 4.5, *[end] * 100], 100)
    assert (memory.verdict, memory.more_steps) == ("undecided", None)
    assert "how far it can fall isn't known" in memory.sentence


def test_where_an_error_was_found_it_is_stuck_there() -> None:
    assert judge_memory([5.0, 4.5, *[3.0] * 100], 100, faulty=True).verdict == "not memorised"
    assert judge_memory(falling(5.0, 0.5, 60), 59, faulty=True).verdict == "undecided"


def test_a_floor_that_a_model_undercuts_is_none() -> None:
    memory = judge_memory(falling(2.0, 0.01, 60), 59, constant=1.9, floor=1.9)
    assert (memory.verdict, memory.floor) == ("memorised", None)


def test_a_single_sample_can_be_memorised_which_says_little() -> None:
    memory = judge_memory(falling(2.3, 0.001, 50), 49, constant=0.0, floor=0.0, alike=True)
    assert memory.verdict == "memorised"
    assert "give several samples" in memory.sentence
    smoothed = judge_memory([2.3, *[0.5] * 50], 49, constant=0.5, floor=0.5, alike=True)
    assert smoothed.verdict == "memorised"


@pytest.mark.parametrize("end", [0.0, 1e-9])
def test_equal_targets_are_told_however_confident_a_model_gets(end: float) -> None:
    memory = judge_memory([*falling(0.7, 0.01, 30), *[end] * 30], 59, constant=3e-3, floor=3e-3, alike=True)
    assert memory.verdict == "memorised"
    assert "a constant prediction would score" in memory.sentence
    assert "give several samples" in memory.sentence
    unknown = judge_memory([*falling(0.7, 0.01, 30), *[end] * 30], 59, alike=True)
    assert "a constant prediction would do as well" in unknown.sentence


def test_a_constant_that_is_as_good_is_told_where_the_targets_are_not_seen() -> None:
    assert "give several samples" in judge_memory(falling(0.7, 0.0, 60), 59, constant=1e-9, floor=1e-9).sentence
    assert "give several samples" not in judge_memory(falling(24e3, 0.01, 60), 59, constant=1.0, floor=0.0).sentence


def test_an_error_explains_why_nothing_was_learnt() -> None:
    curve = falling(2.9, 2.3, 100)
    assert judge_memory(curve, 100, constant=2.295, floor=0.0).verdict == "undecided"
    assert judge_memory(curve, 100, constant=2.295, floor=0.0, faulty=True).verdict == "not memorised"
    assert judge_memory(falling(2.3, 0.8, 100), 99, constant=2.0, floor=0.0, faulty=True).verdict == "undecided"


def test_a_loss_whose_floor_is_unknown_promises_no_number_of_steps() -> None:
    sentence = judge_memory(falling(5.0, 0.5, 60), 59).sentence
    assert sentence.startswith("undecided, run more steps: ")
    assert "how far it can fall isn't known" in sentence


def test_a_large_term_that_is_gone_does_not_hide_one_that_stands() -> None:
    curve = [380.0 * 0.8**step + 2.302 + 0.05 * 0.99**step for step in range(300)]
    memory = judge_memory(curve, 300)
    assert (memory.verdict, memory.more_steps) == ("undecided", None)
    assert "how far it can fall isn't known" in memory.sentence
    assert judge_memory(falling(380.0, 2.3, 60), 60).verdict == "memorised"  # still on its way to zero
    told = judge_memory(falling(380.0, 2.3, 60), 60, at_chance="its term cross_entropy stands at 2.3")
    assert told.verdict == "undecided"
    assert "its term cross_entropy stands at 2.3" in told.sentence


def test_a_model_that_begins_at_the_floor_has_memorised() -> None:
    assert judge_memory([0.5] * 30, 29, constant=0.5, floor=0.5, alike=True).verdict == "memorised"


def test_a_loss_that_falls_slowly_from_the_start_is_undecided() -> None:
    memory = judge_memory(falling(1.373, 1.146, 31), 30, constant=1.367, floor=0.0)
    assert memory.verdict == "undecided"
    assert memory.more_steps is not None
    assert judge_memory(falling(3.262, 3.178, 11), 10, constant=1.3, floor=0.0).verdict == "undecided"
    assert judge_memory(falling(3.262, 3.261, 301), 300, constant=1.3, floor=0.0).verdict == "not memorised"


def test_an_empty_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="without a single loss"):
        judge_memory([], 0)
