"""Hawk's real server and its real runner, without the cluster that they are made for. `make hawk` runs what needs them."""
