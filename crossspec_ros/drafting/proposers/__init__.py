"""Proposers; `make_proposers` in `drafting/proposer.py` creates them by name."""
