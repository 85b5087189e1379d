"""One proposer a file; its name is the file's (`drafting/registry.py`)."""
