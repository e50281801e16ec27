"""``unstuck doctor``: the whole workflow on one program, in order, until a cause is certain."""

from __future__ import annotations

from unstuck.workflow.doctor.examine import Examination, examine, unbuildable

__all__ = ["Examination", "examine", "unbuildable"]
