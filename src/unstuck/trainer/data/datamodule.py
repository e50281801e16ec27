"""LightningDataModule: the data of a training in one object."""

from __future__ import annotations

__all__ = ["LightningDataModule"]


class LightningDataModule:
    """As in Lightning 2.x (prepare_data, setup, *_dataloader, transfer hooks, teardown, state_dict, from_datasets, hparams)."""
