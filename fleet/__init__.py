"""Run Inspect AI evals on a fleet of EC2 instances, orchestrated by Prefect."""

__version__ = "0.1.0"
