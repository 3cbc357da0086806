"""The settings of a Prefect server that keeps to itself: SQLite, nothing sent elsewhere. Plain data; Prefect isn't imported."""

from __future__ import annotations

from pathlib import Path


def server_on_sqlite(database: Path) -> dict[str, str]:
    """The environment variables of a server whose database is this file."""
    return {
        "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{database}",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        # The memo imports every installed collection at each start, only to find that nothing has changed.
        "PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
        # The defaults suit Postgres; SQLite takes fewer, larger writes better (85 task runs a second against 30).
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
        # A batch that doesn't fill is written after this many seconds (5 by default): a person watches.
        "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "50",
        "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_FLUSH_INTERVAL": "1",
    }
