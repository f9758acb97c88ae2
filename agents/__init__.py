"""Strategies that search a space through a bench, and the reinforcement-learning environment.

Importing this package registers the Gymnasium environment `warpdeck/KernelTuning-v0` (if Gymnasium is
installed, and without importing it): `gymnasium.make("warpdeck/KernelTuning-v0", kernel_name="softmax",
device="recorded:h200")`.
"""

from .registration import register_environment

register_environment()
