"""The account's template as text, as it lies in this installation."""

from __future__ import annotations

from pathlib import Path

FILE = Path(__file__).with_name("template.yaml")

BODY_BYTES = 51_200
"""The largest template that CloudFormation takes in a call (AWS CloudFormation User Guide, quotas)."""


def template_text() -> str:
    """The template."""
    return FILE.read_text(encoding="utf-8")
