"""The target for many robots: its sessions, their stream, and Ray Serve around it."""
