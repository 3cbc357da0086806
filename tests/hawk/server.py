"""Hawk as a team would have deployed it, on this machine: its real server, with all that it needs, for as long as a block runs.

Everything is started here and ends here; were this process killed, all of it would end by itself.
"""

from __future__ import annotations

import logging
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx
from moto.server import ThreadedMotoServer

from fleet.local.processes import MARK, Finder, end
from fleet.services.tunnel import free_port
from tests.hawk import helm
from tests.hawk.releases import Release, releases
from tests.hawk.surroundings import ACCESS, AUDIENCE, Surroundings, surroundings
from tests.hawk.tools import Tools

BUCKET = "hawk"
BOOT_S = 600.0
"""Seconds in which a part must answer: seconds where nothing else runs, minutes on a busy machine."""
MIGRATE = """
from alembic import command, config
made = config.Config()
made.set_main_option("script_location", "hawk.core.db:alembic")
command.upgrade(made, "heads")
"""


@dataclass(frozen=True, slots=True)
class Hawk:
    """A deployment."""

    address: str
    folder: Path
    around: Surroundings
    store: str
    """The address of its S3."""

    def token(self, *, who: str = "ada", seconds: int = 3600) -> str:
        """An access token of that person, good for so long."""
        return self.around.token(who=who, seconds=seconds)

    def client(self, **token: Any) -> httpx.Client:
        """Plain HTTP with a token."""
        return httpx.Client(
            base_url=self.address, headers={"Authorization": f"Bearer {self.token(**token)}"}, timeout=120
        )

    def installed(self) -> list[Release]:
        """What its Helm holds now."""
        return list(releases(self.folder / "releases" / "installed"))

    def started(self) -> list[str]:
        """The name of every release that was ever installed: one for each time that an eval set was launched."""
        gone = [path.name.rpartition("-")[0] for path in sorted((self.folder / "releases" / "gone").iterdir())]
        return [*gone, *(one.name for one in self.installed())]


@contextmanager
def hawk(tools: Tools, *, runner: Mapping[str, str] | None = None) -> Iterator[Hawk]:
    """A deployment on free ports, with nothing in it. `runner`: variables that the server hands on to its runners."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="inspect-fleet-hawk-"))).resolve()
        stack.callback(_nothing_left, folder)
        state = folder / "releases"
        around = stack.enter_context(surroundings(state / "installed"))
        program = helm.install(folder / "bin", state=state, runner=tools.runner, owner=os.getpid())
        store = stack.enter_context(_store())
        stack.callback(end, Finder(f"{folder}:pod"), grace=helm.LEAVING_S)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("HAWK_", "AWS_", "PREFECT_"))
        }
        environment = {
            **inherited,
            MARK: f"{folder}:hawk",
            "PATH": f"{program}:{tools.server.parent}:{os.environ['PATH']}",
            "UV_CACHE_DIR": str(tools.packages),
            **_aws(store),
            **(runner or {}),
        }
        database = stack.enter_context(_database(tools, folder, environment))
        environment |= _settings(folder, around, database)
        _run([str(tools.server), "-c", MIGRATE], environment, folder / "migrations.txt")
        port = free_port(0)
        command = [str(tools.server), "-m", "uvicorn", "hawk.api.server:app", "--timeout-graceful-shutdown", "2"]
        server = stack.enter_context(_process([*command, "--port", str(port)], environment, folder / "server.txt"))
        address = f"http://127.0.0.1:{port}"
        _until("Hawk's server", lambda: _answers(f"{address}/health/live"), server, folder / "server.txt")
        yield Hawk(address, folder, around, store)


def _settings(folder: Path, around: Surroundings, database: str) -> dict[str, str]:
    """The server's settings."""
    configuration = folder / "kubeconfig"
    configuration.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        f"clusters: [{{name: x, cluster: {{server: '{around.address}/kubernetes'}}}}]\n"
        "users: [{name: x, user: {token: x}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"
    )
    token = {
        "AUDIENCE": AUDIENCE,
        "CLIENT_ID": "hawk-cli",
        "ISSUER": around.address,
        "SCOPES": "openid",
        "SCOPES_SUPPORTED": "[]",
        "JWKS_URI": f"{around.address}/jwks",
        "TOKEN_ENDPOINT": f"{around.address}/token",
        "AUTHORIZATION_ENDPOINT": f"{around.address}/authorize",
        "DEVICE_AUTHORIZATION_ENDPOINT": "",
        "REVOCATION_ENDPOINT": f"{around.address}/revoke",
        "EMAIL_FIELD": "email",
        "DEFAULT_PERMISSIONS": ACCESS,
    }
    return {
        **{f"HAWK_API_MODEL_ACCESS_TOKEN_{name}": value for name, value in token.items()},
        "HAWK_API_S3_BUCKET_NAME": BUCKET,
        "HAWK_API_MIDDLEMAN_API_URL": around.address,
        "HAWK_API_KUBECONFIG_FILE": str(configuration),
        "HAWK_API_RUNNER_DEFAULT_IMAGE_URI": "none/runner:1",
        "HAWK_API_TASK_BRIDGE_REPOSITORY": "none",
        "HAWK_API_DOCKER_IMAGE_REPO": "none",
        "HAWK_API_COOKIE_SECURE": "false",
        "HAWK_API_DATABASE_URL": database,
        "DATABASE_URL": database,
    }


def _aws(store: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": store,
        "AWS_ACCESS_KEY_ID": "harness",
        "AWS_SECRET_ACCESS_KEY": "harness",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }


@contextmanager
def _store() -> Iterator[str]:
    """An S3 with the deployment's bucket, which keeps versions as theirs does; its address."""
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells every request on stderr
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        s3 = boto3.client(
            "s3",
            endpoint_url=address,
            region_name="us-east-1",
            aws_access_key_id="harness",
            aws_secret_access_key="harness",
        )
        s3.create_bucket(Bucket=BUCKET)
        s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield address
    finally:
        server.stop()


@contextmanager
def _database(tools: Tools, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """An empty database; its address. PostgreSQL refuses to run as root, so it gets a user of its own then."""
    with tempfile.TemporaryDirectory(prefix="inspect-fleet-hawk-db-") as scratch:
        user = None
        if os.geteuid() == 0:
            user = next(one for name in ("postgres", "nobody") for one in pwd.getpwall() if one.pw_name == name)
            os.chown(scratch, user.pw_uid, user.pw_gid)
        ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user else []
        data, port = Path(scratch) / "data", free_port(0)
        making = ["--auth=trust", "--username=hawk", "--encoding=UTF8", "--locale=C", "--no-sync"]
        program = [str(tools.postgres / "initdb"), *making, "--pgdata", str(data)]
        _run(["setpriv", *ids, *program], environment, folder / "database.txt")
        # Nothing of it outlives this block, so nothing waits for the disk.
        quick = [f"-c{name}=off" for name in ("fsync", "synchronous_commit", "full_page_writes")]
        serving = [str(tools.postgres / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), *quick]
        command = [*serving, "-k", scratch]
        with _process(command, environment, folder / "database.txt", settings=ids) as server:
            ready = [str(tools.postgres / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-U", "hawk"]
            answers = lambda: subprocess.run(ready, check=False).returncode == 0  # noqa: E731
            _until("PostgreSQL", answers, server, folder / "database.txt")
            yield f"postgresql+psycopg://hawk@127.0.0.1:{port}/postgres"


@contextmanager
def _process(
    command: Sequence[str], environment: Mapping[str, str], output: Path, *, settings: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block runs; it also ends when this one is killed. `settings`: of setpriv."""
    with output.open("ab") as file:
        process = subprocess.Popen(
            ["setpriv", *settings, "--pdeathsig", "INT", *command],
            env=dict(environment),
            cwd=output.parent,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.send_signal(2)  # uvicorn's, and PostgreSQL's fast one, which waits for no client
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run(command: Sequence[str], environment: Mapping[str, str], output: Path) -> None:
    with output.open("ab") as file:
        done = subprocess.run(
            command, env=dict(environment), cwd=output.parent, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    if done.returncode:
        raise AssertionError(f"{command[0]} ended with {done.returncode}: {output.read_text()[-3000:]}")


def _until(what: str, answers: Callable[[], bool], process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + BOOT_S
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{what} doesn't answer: {output.read_text(errors='replace')[-3000:]}")
        time.sleep(0.1)


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=10).is_success
    except httpx.TransportError:
        return False


def _nothing_left(folder: Path) -> None:
    left = end(Finder(f"{folder}:"), grace=0)
    shutil.rmtree(folder / "releases", ignore_errors=True)
    assert not left, f"left behind: {left}"
