"""The duty of an instance: from the event `booted` to the event `ended`, with nothing secret left behind it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from bootstrap.clockwork import real_clockwork
from bootstrap.host import HostFailed
from bootstrap.identity import Metadata
from bootstrap.instance import LAST_WORD_SECONDS, Instance
from bootstrap.private_files import remove_folder
from bootstrap.uptime import uptime
from fleet.aws.session import Aws
from fleet.errors import FleetError
from fleet.evals.documents import WorkerOrder


@asynccontextmanager
async def on_duty(
    order: WorkerOrder,
    *,
    worker: str,
    name: str = "",
    say: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
    aws: Aws | None = None,
) -> AsyncIterator[Instance]:
    """This instance, from `booted` to `ended`: both events are sent whatever happens between, but for a SIGKILL.

    `worker`, `name`: id and name of its flow run.

    A FleetError ends the block and goes no further: the instance says then that it `failed`, and how.
    """
    from prefect.exceptions import TerminationSignal
    from prefect.logging.handlers import APILogHandler

    clockwork = real_clockwork()
    instance_id = environ.get("FLEET_INSTANCE_ID", "") or await clockwork.in_thread(Metadata(environ).instance_id)
    folder = _folder()
    instance = Instance(
        order,
        instance_id=instance_id,
        worker=worker,
        name=name,
        say=say,
        clockwork=clockwork,
        folder=folder,
        aws=aws,
    )
    await instance.reports.send("booted", seconds=round(uptime(environ), 1))
    try:
        yield instance
    except FleetError as error:
        instance.failed = True
        instance.reason = "host" if isinstance(error, HostFailed) else "failed"
        instance.ended = f"{instance.doing} failed: {instance.secrets.hide(str(error))[:1500]}"
        say(instance.ended)
    except BaseException as error:
        if instance.reason == "failed" and isinstance(error, TerminationSignal):
            instance.reason = "stopped"
        if instance.ended == "failed":
            instance.ended = f"{type(error).__name__}: {instance.secrets.hide(str(error))[:500]}"
        raise
    finally:
        with anyio.move_on_after(LAST_WORD_SECONDS, shield=True):
            seconds = round(uptime(environ), 1)
            await instance.reports.send("ended", reason=instance.reason, why=instance.ended, seconds=seconds)
            await APILogHandler.aflush()  # a process that a signal ends sends no more lines
        instance.secrets.forget()
        try:
            instance.duties.close()
        except (OSError, FleetError) as error:  # of no use to the run that is over; the folder must go all the same
            say(f"not everything was tidied up: {error}")
        finally:
            remove_folder(folder)


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fleet-worker-"))
    folder.chmod(0o711)  # runners of another user have folders of their own in it
    return folder
