"""Model families behind two contracts, checkpoints, placement and memory."""
