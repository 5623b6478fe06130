"""One training step for every objective, and the loop around it."""
