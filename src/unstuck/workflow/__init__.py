"""The workflow of debugging a training: learn a few batches by heart, watch the gradients, locate numerical faults."""

from __future__ import annotations
