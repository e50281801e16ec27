"""Advice on `unstuck run --rerun`, which an examination has no use for, is left out; all else stays."""

from __future__ import annotations

from unstuck.diagnosis.rules import numerics_nonfinite_backward, numerics_nonfinite_forward
from unstuck.findings import Finding, Severity, Where
from unstuck.places import Frame
from unstuck.workflow.doctor.wording import for_examination


def finding(remedy: str, *notes: str) -> Finding:
    return Finding("numerics.nonfinite-forward", Severity.ERROR, "", remedy=remedy, notes=notes)


def test_advice_for_another_command_is_left_out() -> None:
    for rule in (numerics_nonfinite_forward, numerics_nonfinite_backward):
        assert "--rerun" in rule._UNKNOWN.remedy
        told = for_examination(finding(rule._UNKNOWN.remedy), ())
        assert told.remedy == rule._UNKNOWN.remedy.partition("; `unstuck")[0]
    told = for_examination(
        finding(
            "", "the operation isn't known (a reason); `unstuck run --rerun` traces the step as it happens", "more"
        ),
        (),
    )
    assert told.notes == ("the operation isn't known (a reason)", "more")


def test_frames_around_the_examination_are_cut() -> None:
    outside = (Frame("/bin/tool", 6, "<module>"), Frame("/tests/some.py", 3, "main"))
    inside = (Frame("/home/train.py", 9, "build"), Frame("/home/model.py", 2, "forward"))
    at = Where(file="/home/model.py", line=2, chain=(*outside, *inside))
    told = for_examination(Finding("optim.lr-too-low", Severity.ERROR, "", at), outside)
    assert told.where == Where(file="/home/model.py", line=2, chain=inside)
    only = Where(file="/bin/tool", line=6, chain=outside[:1])
    assert for_examination(Finding("optim.lr-too-low", Severity.ERROR, "", only), outside).where == Where()
    bare = Where(file="/bin/tool", line=6)
    assert for_examination(Finding("optim.lr-too-low", Severity.ERROR, "", bare), outside).where == Where()
