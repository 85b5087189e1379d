"""Other people's ways to decode, on the same target and the same windows: what ours is compared with."""
