"""A deterministic driving world: what happens, how it is drawn, what an event camera sees, what a caption
says."""
