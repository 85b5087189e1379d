"""The target: its thread, sessions and steps, KV pool, draft tree and acceptance."""
