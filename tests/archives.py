"""Zip archives as bytes, for tests that need a log's form and little of its content.

Members carry no date. Written with the time of day, two archives of the same members differ whenever two seconds begin
between them, and a test that compares them fails once in many runs.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping


def zip_of(members: Mapping[str, str | bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive of these members, the same bytes whenever it is made."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in members.items():
            archive.writestr(zipfile.ZipInfo(name), text, method)
    return content.getvalue()
