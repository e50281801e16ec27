"""The loops of the Trainer, as plain functions over a :class:`~unstuck.trainer.run.Run`."""
