"""Random commands to Redis and to Sheaf, side by side; see test_differential.py."""
