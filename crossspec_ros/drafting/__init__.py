"""Who guesses, and how much of it is verified: proposers, policy, costs, the event draft."""
