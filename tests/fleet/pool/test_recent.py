"""What launches of one moment share is asked for once, and not for ever."""

from __future__ import annotations

import pytest

from fleet.pool.recent import Recent


def test_an_answer_is_shared_until_it_is_old_and_a_refusal_is_not() -> None:
    now, asked = [0.0], []

    def look() -> int:
        asked.append(now[0])
        if len(asked) == 1:
            raise LookupError
        return len(asked)

    recent: Recent[int] = Recent(60, clock=lambda: now[0])
    with pytest.raises(LookupError):
        recent.get("a", look)
    assert [recent.get("a", look), recent.get("a", look), recent.get("b", look)] == [2, 2, 3]
    now[0] = 60.0
    assert recent.get("a", look) == 4
