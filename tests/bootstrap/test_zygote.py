"""The parent's end of the socket to the zygote. What the two do together: `test_runners.py`."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from bootstrap.zygote import Zygote


def test_one_that_ended_before_it_was_asked_anything_is_gone_and_no_error(tmp_path: Path) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec("true", start_new_session=True)
        ours, theirs = socket.socketpair()
        theirs.close()
        zygote = Zygote(process, ours)
        assert not await zygote.warm([], tmp_path / "known.json")
        assert zygote.gone
        await zygote.close()

    asyncio.run(main())
