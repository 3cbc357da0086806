"""Hawk's own pages about an eval set, for links: a deployment says itself where its log viewer is."""

from __future__ import annotations

from urllib.parse import quote

import httpx

ANSWER_S = 10.0
"""Seconds for an answer that a run can do without."""


def viewer_of(address: str) -> str:
    """The address of the log viewer that belongs to the API at `address`; empty: it names none, or doesn't answer.

    `GET /auth/config` needs no token; Hawk's own command asks it for the same.
    """
    try:
        answer = httpx.get(f"{address.rstrip('/')}/auth/config", timeout=ANSWER_S)
        found = answer.json() if answer.is_success else {}
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return ""
    viewer = found.get("log_viewer_url") if isinstance(found, dict) else None
    return viewer if isinstance(viewer, str) else ""


def page(viewer: str, eval_set: str) -> str:
    """Where a person sees this eval set; empty without a viewer."""
    return f"{viewer.rstrip('/')}/eval-set/{quote(eval_set, safe='')}" if viewer else ""
