"""Example Inspect tasks, and a scripted model that answers them."""
