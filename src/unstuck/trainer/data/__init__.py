"""How batches reach a training: limits, loaders, overfitting on a few batches, devices, random state."""
