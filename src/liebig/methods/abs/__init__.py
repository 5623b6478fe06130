"""Adaptive batch scheduling: hardness, schedule, swaps, and the sampler."""
