"""The proposers; `make_proposers` in `drafting/proposer.py` has their names."""
