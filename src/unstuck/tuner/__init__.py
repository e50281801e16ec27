"""Finding a learning rate and a batch size before a training: trials on copies of the module."""

from unstuck.tuner.lr_finder import LRFinder
from unstuck.tuner.tuner import Tuner

__all__ = ["LRFinder", "Tuner"]
