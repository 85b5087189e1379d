"""The one-second window: its grid, the synchronizer that fills it and the assembler that collects it."""
