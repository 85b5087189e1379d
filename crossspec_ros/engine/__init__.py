"""The target: its thread and loop, requests, KV pool, draft tree and acceptance."""
