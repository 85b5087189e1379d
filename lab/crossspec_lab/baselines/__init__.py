"""Other people's decoders."""
