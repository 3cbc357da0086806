"""Evals that run with no key and no network, and the demo that runs one of them on a local cloud.

`fleet_examples` in this folder is a package of its own: `--source examples` installs it into the job environment.
"""
