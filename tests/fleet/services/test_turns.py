"""Writers of a Prefect server's database: many at a time, on a real SQLite file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import sqlalchemy as sa
from prefect.server.database.configurations import AioSqliteConfiguration
from sqlalchemy.exc import OperationalError

from fleet.services.turns import Begin, in_turn

WRITERS = 8
PLAIN: Begin = AioSqliteConfiguration.begin_transaction


async def count_up(file: Path, begin: Begin) -> int:
    """Let writers that first read add one each, all at a time; what they come to."""
    config = AioSqliteConfiguration(f"sqlite+aiosqlite:///{file}")
    engine = await config.engine()

    async def add_one() -> None:
        async with await config.session(engine) as session, begin(config, session):
            value = (await session.execute(sa.text("SELECT value FROM counter"))).scalar_one()
            await asyncio.sleep(0)
            await session.execute(sa.text("UPDATE counter SET value = :value"), {"value": value + 1})

    try:
        async with engine.begin() as connection:
            await connection.execute(sa.text("CREATE TABLE counter AS SELECT 0 AS value"))
        await asyncio.gather(*[add_one() for _ in range(WRITERS)])
        async with engine.connect() as connection:
            return int((await connection.execute(sa.text("SELECT value FROM counter"))).scalar_one())
    finally:
        await engine.dispose()


def test_writers_that_take_turns_are_all_served(tmp_path: Path) -> None:
    assert asyncio.run(count_up(tmp_path / "a.db", in_turn(PLAIN))) == WRITERS


def test_without_turns_sqlite_refuses_some_of_them(tmp_path: Path) -> None:
    """Once this fails, Prefect begins its transactions as writers, and `fleet.services.turns` can go."""
    with pytest.raises(OperationalError, match="locked"):
        asyncio.run(count_up(tmp_path / "a.db", PLAIN))


def test_a_transaction_within_a_transaction_does_not_wait_for_itself(tmp_path: Path) -> None:
    begin = in_turn(PLAIN)

    async def nested() -> None:
        config = AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path / 'a.db'}")
        engine = await config.engine()
        async with (
            await config.session(engine) as outer,
            begin(config, outer),
            await config.session(engine) as inner,
            begin(config, inner),
        ):
            await inner.execute(sa.text("SELECT 1"))
        async with await config.session(engine) as later, begin(config, later):
            await later.execute(sa.text("CREATE TABLE done (value INT)"))
        await engine.dispose()

    asyncio.run(asyncio.wait_for(nested(), 30))
