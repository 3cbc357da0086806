"""AWS on a loopback port: moto with its corrections behind one WSGI edge that scripts faults and knows who asks.

Everything here is one process: moto's backends are its globals, and are corrected once, by `Emulator.start`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable
from functools import partial
from threading import Lock, Thread
from typing import Any

from fleet.local.calls import Call, Environ, StartResponse, read_call, refuse
from fleet.local.corrections_start import import_moto
from fleet.local.disks import Disks
from fleet.local.faults import PATH, FaultBook
from fleet.local.machines import Machines, Watcher
from fleet.local.permission import REFUSALS, refusal
from fleet.local.roots import Roots
from fleet.local.sessions import OPERATIONS, answer_session

log = logging.getLogger(__name__)

Application = Callable[[Environ, StartResponse], Iterable[bytes]]

ONE_AT_A_TIME = frozenset({"cloudformation", "ec2", "iam", "sts", "ssm"})
"""Services whose calls moto must not answer side by side. S3 it can; SQS has a lock of its own."""
CONDITIONS = frozenset({"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"})
"""With one of these S3 looks and writes in one step; moto looks, and another may write before it does."""
WARM = ("sts", "ssm", "sqs", "s3", "ec2")
"""Services whose models are loaded while nobody waits."""


class Emulator:
    """The emulated account. One a process."""

    def __init__(self, watcher: Watcher, console: Callable[[str], bytes], disks: Disks, roots: Roots) -> None:
        """Load moto, correct it and fill the account from `preset`. EmulatorUnknown: another moto is installed.

        `watcher` hears of every instance; `console` gives an instance's output; `disks` keeps what volumes hold, `roots`
        what images are made of.
        """
        import_moto()
        from fleet.local.corrections_cloudformation import correct_cloudformation
        from fleet.local.corrections_ec2 import correct_ec2
        from fleet.local.corrections_fleets import correct_fleets
        from fleet.local.corrections_images import add_base_images, correct_images
        from fleet.local.corrections_network import correct_network
        from fleet.local.corrections_probes import correct_probes
        from fleet.local.corrections_sqs import correct_sqs
        from fleet.local.corrections_ssm import correct_ssm
        from fleet.local.corrections_volumes import correct_volumes

        correct_images(roots)
        self.machines: Machines = correct_ec2(watcher, console)
        correct_network()
        correct_volumes(disks)
        correct_sqs()
        correct_ssm()
        correct_probes()
        correct_fleets()
        correct_cloudformation()
        _fill_account()
        add_base_images(roots)
        self.faults = FaultBook()
        self._server: Any = None
        self._edge: Edge | None = None

    def start(self, control: Application) -> str:
        """Listen on a free loopback port; `control` answers the control path. Returns the address."""
        from moto.moto_server.werkzeug_app import (
            DomainDispatcherApplication,
            MotoRequestHandler,
            create_backend_app,
        )
        from werkzeug.serving import make_server

        class Quiet(MotoRequestHandler):
            """moto's, without a line for each request."""

            protocol_version = "HTTP/1.1"

            def log_request(self, *_: Any, **__: Any) -> None:
                """Nothing."""

        moto = DomainDispatcherApplication(create_backend_app)
        self._edge = Edge(moto, self.faults, control, self.machines)
        self._server = make_server("127.0.0.1", 0, self._edge, threaded=True, request_handler=Quiet)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, name="emulator", daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def warm(self) -> None:
        """Load what the first calls would wait for, in a thread of its own."""
        Thread(target=_warm, name="warm", daemon=True).start()

    def refuse_all(self) -> None:
        """Change nothing any more: what is asked from now on is refused."""
        if self._edge is not None:
            self._edge.closed = True

    def stop(self) -> None:
        """Stop listening. Calls that wait (long polls) are dropped when the process ends."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class Edge:
    """What each request passes: control path, fault, permission, lock, moto.

    The corrections are imported where they are used: they import moto, which must have been told its switches before.
    """

    def __init__(self, moto: Any, faults: FaultBook, control: Application, machines: Machines) -> None:
        self._moto = moto
        self._faults = faults
        self._machines = machines
        self._control = control
        self._one_writer = Lock()
        self.closed = False

    def __call__(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        """As a WSGI application."""
        from fleet.local.corrections_iam import caller_of, tags_of

        if environ["PATH_INFO"].startswith(f"{PATH}/"):
            return self._control(environ, start)
        call = read_call(environ)
        if self.closed:
            why = "the local cloud is ending"
            return refuse(call, environ, start, code="ServiceUnavailable", status=503, message=why)
        caller = caller_of(call.access_key)
        fault = self._faults.take(call, caller.instance if caller else None)
        if fault is not None:
            time.sleep(fault.delay)
            answer = fault.answer()
            if answer is not None:
                code, status = answer
                if fault.lost:
                    self._answer(call, environ, _nobody)
                    environ["CONTENT_LENGTH"] = "0"  # it has been read
                return refuse(call, environ, start, code=code, status=status, message=fault.message)
        if not self._is_known(environ):
            why = f"{call.service} is not part of the local cloud"
            return refuse(call, environ, start, code="AccessDeniedException", status=400, message=why)
        if caller is not None:
            denied = refusal(call, caller, partial(tags_of, call.region)) or _elsewhere(environ)
            if denied:
                code, status = REFUSALS.get(call.service, ("AccessDenied", 403))
                return refuse(call, environ, start, code=code, status=status, message=denied)
        if call.service == "ssm" and call.operation in OPERATIONS:
            return answer_session(call, environ, start, self._machines)
        return self._answer(call, environ, start)

    def _answer(self, call: Call, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        from fleet.local.corrections_ec2 import LOCK
        from fleet.local.corrections_sqs import answering

        if call.service == "sqs":
            answering(_listens(environ.get("werkzeug.socket")))
        lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if call.service in ONE_AT_A_TIME:
            lock = LOCK
        elif CONDITIONS & environ.keys():
            lock = self._one_writer
        with lock:
            return list(self._moto(environ, start))

    def _is_known(self, environ: Environ) -> bool:
        """moto answers a service it lacks with a 500, which SDKs try again and again; a refusal ends at once."""
        host = self._moto.infer_service_region_host(environ, environ["PATH_INFO"])
        return host is None or self._moto.get_backend_for_host(host) is not None


def _nobody(*_: Any) -> None:
    """Takes the head of an answer that is lost."""


def _listens(connection: Any) -> Callable[[], bool] | None:
    """How to learn that the client at the other end of a connection hasn't closed it."""
    if not isinstance(connection, socket.socket):
        return None

    def alive() -> bool:
        try:
            return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True  # nothing to read, which is what a client that waits sends
        except OSError:
            return False

    return alive


def _elsewhere(environ: Environ) -> str | None:
    """Why an instance may not ask by this host: moto would read a bucket out of its name, which the policies haven't seen."""
    name = str(environ.get("HTTP_HOST", "")).partition(":")[0]
    return None if name == "localhost" or name.startswith("127.") else f"the local cloud isn't {name}"


def _fill_account() -> None:
    from fleet.local.account import fill_account

    fill_account()


def _warm() -> None:
    from moto.core.utils import get_service_model

    for service in WARM:
        get_service_model(service)
    # TerminateInstances tells these of each instance, and imports them at the first one.
    import moto.autoscaling.models
    import moto.elbv2.models  # noqa: F401
