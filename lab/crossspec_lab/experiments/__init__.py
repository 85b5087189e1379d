"""Published experiments, on the tiny pair."""
