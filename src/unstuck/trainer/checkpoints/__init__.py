"""Checkpoints: what they hold, how they are written and read, and how a run goes on from one."""
