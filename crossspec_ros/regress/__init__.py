"""Guards a recording's captions: replayed in code against goldens, through the nodes against a baseline."""
