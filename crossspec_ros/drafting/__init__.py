"""Drafting: proposers that guess, the policy that cuts their tree, the event draft."""
