"""The program of a control plane: `python -m bootstrap.control_plane BASE`, started by its user data and again when it ends.

It reads its order, mounts its volume, and keeps a Prefect server on it and the pool workers beside it, on this instance's
private address and behind the auth string. Pools, blocks and deployments are made before the pool workers begin. All that
matters is on the volume: another instance goes on where this one ended.

The auth string is in the environment of its processes and nowhere else.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path

from bootstrap.boot import secret_parameter
from bootstrap.identity import Metadata
from bootstrap.uptime import stamp
from bootstrap.volume import Volume
from fleet.aws.objects import Objects, bucket_and_key
from fleet.aws.session import Aws
from fleet.errors import FleetError
from fleet.services.control_plane import ORDER_PARAMETER, PORT, ControlPlaneOrder, read_order
from fleet.services.launcher import PARENT
from fleet.services.settings import server_on_sqlite
from fleet.services.supervision import Part, Supervision

DATA = "inspect-fleet-data"
"""Folder under BASE where the volume is mounted."""
LOG_BYTES = 5_000_000
SHIP_SECONDS = 300.0
"""Between two copies of the log to S3."""
LOOK_SECONDS = 0.5
ENDING = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("control-plane")


@dataclass(frozen=True, slots=True)
class Place:
    """Where this control plane runs."""

    instance: str
    address: str
    """Its private address."""
    region: str
    base: Path

    @property
    def data(self) -> Path:
        """What outlives the instance."""
        return self.base / DATA

    @property
    def api(self) -> str:
        """The server's API, as everything but a tunnel calls it."""
        return f"http://{self.address}:{PORT}/api"


class ControlPlaneUnfit(FleetError):
    """This machine can't be a control plane."""

    why: str

    def message(self) -> str:
        """One line."""
        return f"no control plane here: {self.why}"


def place_of(metadata: Metadata, base: Path) -> Place:
    """Where we are, by the metadata service. InstanceUnknown, ControlPlaneUnfit."""
    instance = metadata.instance_id()
    address, region = metadata.get("local-ipv4"), metadata.get("placement/region")
    if not address or not region:
        raise ControlPlaneUnfit(why="the metadata service names no private address or no region")
    return Place(instance, address.strip(), region.strip(), base.resolve())


def client_environment(place: Place, auth: str, environ: Mapping[str, str]) -> dict[str, str]:
    """What every process here gets: `environ` without another's Prefect settings, and this server's address and auth string."""
    kept = {name: value for name, value in environ.items() if not name.startswith("PREFECT_")}
    home = place.data / "prefect"
    return {
        **kept,
        "AWS_DEFAULT_REGION": place.region,
        "AWS_REGION": place.region,
        "FLEET_INSTANCE_ID": place.instance,
        "FLEET_POOL_WORKER_NAME": "control-plane",
        "PREFECT_API_URL": place.api,
        "PREFECT_API_AUTH_STRING": auth,
        "PREFECT_HOME": str(home),
        "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        # A server that starts unasked would hide that ours is gone.
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PYTHONUNBUFFERED": "1",
        "DO_NOT_TRACK": "1",
        PARENT: str(os.getpid()),
    }


def server_environment(place: Place, auth: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The server's own: authenticated, its database on the volume, nothing sent elsewhere."""
    return {
        **client_environment(place, auth, environ),
        **server_on_sqlite(place.data / "prefect" / "prefect.db"),
        "PREFECT_SERVER_API_AUTH_STRING": auth,
        # Relative: a browser comes through a tunnel, by an address that only the laptop knows.
        "PREFECT_SERVER_UI_API_URL": "/api",
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(place.base / "prefect-ui"),
    }


class Child:
    """A process of ours whose output goes into the log, line by line."""

    def __init__(self, name: str, arguments: Sequence[str], env: Mapping[str, str], fds: tuple[int, ...] = ()) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fleet.services.launcher", *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=fds,
        )
        threading.Thread(target=self._copy, args=(name,), name=f"log-{name}", daemon=True).start()

    def ended(self) -> int | None:
        """See `Running.ended`."""
        return self._process.poll()

    def tell(self) -> None:
        """See `Running.tell`."""
        self._process.terminate()

    def kill(self) -> None:
        """See `Running.kill`."""
        self._process.kill()

    def _copy(self, name: str) -> None:
        assert self._process.stdout is not None  # noqa: S101  it was asked for
        with self._process.stdout as output:
            for line in output:
                log.info("%s: %s", name, line.decode(errors="replace").rstrip())


def parts_of(place: Place, order: ControlPlaneOrder, auth: str, listener: socket.socket) -> list[Part]:
    """What runs here, in the order in which one needs the other."""
    client = client_environment(place, auth, os.environ)
    server = server_environment(place, auth, os.environ)
    deploy = {**client, "FLEET_ACCOUNT": json.dumps(order.account)}
    fd = listener.fileno()
    return [
        Part(
            "server", lambda: Child("server", ["fleet.services.server", str(fd)], server, (fd,)), lambda: answers(place)
        ),
        Part("deploy", lambda: Child("deploy", ["fleet.account.registration"], deploy), after="server", once=True),
        Part(
            "pool workers",
            lambda: Child("pool workers", ["fleet.services.pool_workers", "ec2", "controllers"], client),
            after="deploy",
        ),
    ]


def answers(place: Place, timeout: float = 5.0) -> bool:
    """Whether the server says that it is well; it needs no auth string for this."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"{place.api}/health", timeout=timeout) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def listen(place: Place) -> socket.socket:
    """The server's socket, on the private address alone. It is kept while the server is started again: who asks then waits.

    ControlPlaneUnfit: the port is taken.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place.address, PORT))
    except OSError as error:
        listener.close()
        raise ControlPlaneUnfit(why=f"{place.address}:{PORT} can't be listened on: {error}") from error
    listener.listen(512)
    return listener


def keep(supervision: Supervision, over: threading.Event, clock: Callable[[], float] = time.monotonic) -> None:
    """Look after the parts until `over` is set, then end them, last first."""
    while not over.is_set():
        supervision.look(clock())
        over.wait(LOOK_SECONDS)
    supervision.stop(clock, time.sleep)


def start_log(folder: Path | None = None) -> None:
    """Lines go to the console, and with a folder to a file in it, which doesn't grow for ever."""
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout)]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        handlers.append(RotatingFileHandler(folder / "control-plane.log", maxBytes=LOG_BYTES, backupCount=2))
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", handlers=handlers, force=True)
    log.setLevel(logging.INFO)


class Shipper:
    """Copies the log to S3 from time to time, and at the end. A log that can't be put disturbs nothing."""

    def __init__(self, aws: Aws, order: ControlPlaneOrder, place: Place) -> None:
        self._file = place.data / "logs" / "control-plane.log"
        self._target: tuple[Objects, str] | None = None
        if order.log_folder:
            bucket, key = bucket_and_key(order.log_folder)
            self._target = (Objects(aws, bucket), f"{key.strip('/')}/{place.instance}/control-plane.log")
        self._shipped = 0.0

    def run(self, over: threading.Event) -> None:
        """Until `over` is set."""
        while not over.wait(SHIP_SECONDS):
            self.ship()

    def ship(self) -> None:
        """One copy, if the log has changed."""
        if self._target is None:
            return
        objects, key = self._target
        try:
            changed = self._file.stat().st_mtime
            if changed != self._shipped:
                objects.put(key, self._file.read_bytes())
                self._shipped = changed
        except (OSError, FleetError) as error:
            log.warning("the log could not be put to S3: %s", error)


def run(place: Place, over: threading.Event, keeping: threading.Event, *, aws: Aws) -> None:
    """Until `over` is set; from `keeping` on there is something to end in order. FleetError: it can't begin, and why."""
    order = read_order(aws, os.environ.get("FLEET_CONTROL_PLANE") or ORDER_PARAMETER)
    Volume(aws, order.volume, instance=place.instance, folder=place.data, say=log.info).mount()
    start_log(place.data / "logs")
    log.info("%s instance %s serves %s from volume %s", stamp(), place.instance, place.api, order.volume)
    auth = secret_parameter(order.auth_parameter, lambda service: getattr(aws, service), time.sleep)
    (place.data / "prefect").mkdir(parents=True, exist_ok=True)
    shipper = Shipper(aws, order, place)
    threading.Thread(target=shipper.run, args=(over,), name="ship-log", daemon=True).start()
    with listen(place) as listener:
        keeping.set()
        keep(Supervision(parts_of(place, order, auth, listener), log.info), over)
    log.info("ended")
    shipper.ship()


def main(arguments: Sequence[str]) -> int:
    """`bootstrap.control_plane BASE`: its exit code is 0 when it was told to end, and 1 with one line when it can't begin."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m bootstrap.control_plane FOLDER\n")
        return 2
    start_log()
    over, keeping = threading.Event(), threading.Event()

    def told(number: int, _frame: object) -> None:
        if not keeping.is_set():  # nothing has been started
            raise SystemExit(128 + number)
        over.set()

    for number in ENDING:
        signal.signal(number, told)
    try:
        place = place_of(Metadata(), Path(arguments[0]))
        run(place, over, keeping, aws=Aws(place.region))
    except FleetError as error:
        log.error("fatal: %s", error)  # noqa: TRY400  a person's to mend; a traceback is for bugs
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
