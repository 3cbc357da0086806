"""Turns at a Prefect server's SQLite database: one transaction at a time may write, in the order in which they asked.

Prefect begins most transactions as readers. SQLite refuses a reader that wants to write after another has written, at once and
whatever the timeout: of eight flow runs that are created at a time, all but one get the answer 503. A browser takes that for
the end, and a client of ours waits for seconds before it tries again. SQLite's own way to wait, for those that begin as
writers, polls and isn't fair: the unlucky wait for half a minute. So they queue here, before they begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar

from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

Begin = Callable[..., AbstractAsyncContextManager[AsyncSessionTransaction]]

_has_turn: ContextVar[bool] = ContextVar("has_turn", default=False)


def in_turn(begin: Begin) -> Begin:
    """`begin`, a method that begins a transaction, for one caller at a time. A transaction within one doesn't wait for itself."""
    turn = asyncio.Lock()

    @asynccontextmanager
    async def begin_in_turn(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncIterator[AsyncSessionTransaction]:
        if _has_turn.get():
            async with begin(self, session, with_for_update=with_for_update) as transaction:
                yield transaction
            return
        async with turn:
            token = _has_turn.set(True)
            try:
                async with begin(self, session, with_for_update=True) as transaction:
                    yield transaction
            finally:
                _has_turn.reset(token)

    return begin_in_turn


def take_turns() -> None:
    """Make the Prefect server in this process take turns. Before it begins."""
    AioSqliteConfiguration.begin_transaction = in_turn(  # type: ignore[method-assign, assignment]
        AioSqliteConfiguration.begin_transaction
    )
