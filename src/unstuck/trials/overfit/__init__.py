"""The overfit test: can a model learn a few batches by heart, and what would prove that it did."""

from __future__ import annotations
