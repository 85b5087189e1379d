"""Proposers, the verifier and the decoder that drives them."""
