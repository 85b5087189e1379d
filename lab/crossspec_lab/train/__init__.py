"""Training of the tiny models and of draft heads."""
