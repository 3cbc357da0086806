"""Prefect's own processes as this project runs them: the server on SQLite, and the pool workers.

The local cloud's supervisor and the control plane start them by name; neither imports them.
"""
