"""The Trainer and its loops."""
