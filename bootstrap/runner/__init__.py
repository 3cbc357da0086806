"""The side of a job that lives in the job environment: the standard library and Inspect, nothing else.

Started by path, never imported by the rest of this project: `<job python> …/bootstrap/runner/__main__.py VERB …`. It has to
run on every Python that Inspect supports, which is older than ours.
"""
