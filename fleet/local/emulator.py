"""AWS on a loopback port: moto with its corrections behind one WSGI edge that scripts faults and knows who asks.

Everything here is one process: moto's backends are its globals, and are corrected once, by `Emulator.start`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable
from threading import Lock, Thread
from typing import Any

from fleet.local import preset
from fleet.local.calls import Call, Environ, StartResponse, read_call, refuse
from fleet.local.corrections_start import import_moto
from fleet.local.disks import Disks
from fleet.local.faults import PATH, FaultBook
from fleet.local.machines import Machines, Watcher
from fleet.local.sessions import OPERATIONS, answer_session

log = logging.getLogger(__name__)

Application = Callable[[Environ, StartResponse], Iterable[bytes]]

ONE_AT_A_TIME = frozenset({"ec2", "iam", "sts", "ssm"})
"""Services whose calls moto must not answer side by side. S3 it can; SQS has a lock of its own."""
CONDITIONS = frozenset({"HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH"})
"""With one of these S3 looks and writes in one step; moto looks, and another may write before it does."""
WARM = ("sts", "ssm", "sqs", "s3", "ec2")
"""Services whose models are loaded while nobody waits."""


class Emulator:
    """The emulated account. One a process."""

    def __init__(self, watcher: Watcher, console: Callable[[str], bytes], disks: Disks) -> None:
        """Load moto, correct it and fill the account from `preset`. EmulatorUnknown: another moto is installed.

        `watcher` hears of every instance; `console` gives an instance's output; `disks` keeps what volumes hold.
        """
        import_moto()
        from fleet.local.corrections_ec2 import correct_ec2
        from fleet.local.corrections_network import correct_network
        from fleet.local.corrections_sqs import correct_sqs
        from fleet.local.corrections_ssm import correct_ssm
        from fleet.local.corrections_volumes import correct_volumes

        self.machines: Machines = correct_ec2(watcher, console)
        correct_network()
        correct_volumes(disks)
        correct_sqs()
        correct_ssm()
        _fill_account()
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
        from fleet.local.corrections_ec2 import LOCK, caller_instance

        if environ["PATH_INFO"].startswith(f"{PATH}/"):
            return self._control(environ, start)
        call = read_call(environ)
        if self.closed:
            why = "the local cloud is ending"
            return refuse(call, environ, start, code="ServiceUnavailable", status=503, message=why)
        instance = caller_instance(call.access_key) if call.access_key else None
        fault = self._faults.take(call, instance)
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
        if call.service == "ssm" and instance is not None:
            with LOCK:
                denied = _denied(call, instance)
            if denied:
                return refuse(call, environ, start, code="AccessDeniedException", status=400, message=denied)
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


def _denied(call: Call, instance: str) -> str | None:
    from fleet.local.corrections_ssm import may_read, tag_of

    arn = f"arn:aws:ec2:{call.region}:{preset.ACCOUNT}:instance/{instance}"
    request = call.parameters()
    if may_read(call.operation, request, arn, lambda name: tag_of(call.region, name)):
        return None
    role = f"arn:aws:sts::{preset.ACCOUNT}:assumed-role/{preset.ROLE}/{instance}"
    what = request.get("Name") or request.get("Path") or ""
    return f"User: {role} is not authorized to perform: ssm:{call.operation} on resource: {what}"


def _fill_account() -> None:
    """Make what `preset` names, on moto's own backends: no request, so no model of a service is loaded for it."""
    from moto.ec2.models import ec2_backends
    from moto.ec2.models.amis import Ami
    from moto.ec2.models.instances import StateReason
    from moto.iam.models import iam_backends
    from moto.s3.models import s3_backends
    from moto.ssm.models import ssm_backends

    from fleet import __version__
    from fleet.aws.images import CONTRACT, CONTRACT_TAG, VERSION_TAG

    ec2 = ec2_backends[preset.ACCOUNT][preset.REGION]
    for image in preset.IMAGES:
        ami = Ami(
            ec2,
            image.id,
            name=image.name,
            architecture=image.architecture,
            state=image.state,
            virtualization_type="hvm",
            hypervisor="xen",
            root_device_type="ebs",
            region_name=f"{preset.REGION}a",
            tags={CONTRACT_TAG: str(CONTRACT), VERSION_TAG: __version__},
        )
        if image.reason:  # moto knows no reason, but shows any attribute that AWS's answer has
            vars(ami)["state_reason"] = StateReason(image.reason, image.reason.split(":", 1)[0])
        ec2.amis[image.id] = ami
    ec2.create_security_group(preset.SECURITY_GROUP, "Inspect Fleet workers: nothing comes in")

    iam = iam_backends[preset.ACCOUNT]["aws"]
    iam.create_role(
        role_name=preset.ROLE,
        assume_role_policy_document=(
            '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"sts:AssumeRole",'
            '"Principal":{"Service":"ec2.amazonaws.com"}}]}'
        ),
        path="/",
        permissions_boundary=None,
        description="Inspect Fleet workers",
        tags=[],
        max_session_duration="43200",
    )
    iam.create_instance_profile(preset.PROFILE, "/", [preset.ROLE])
    s3_backends[preset.ACCOUNT]["aws"].create_bucket(preset.BUCKET, preset.REGION)
    ssm_backends[preset.ACCOUNT][preset.REGION].put_parameter(
        name=preset.IMAGE_PARAMETER,
        description="The worker image",
        value=preset.IMAGE,
        parameter_type="String",
        allowed_pattern="",
        keyid="",
        overwrite=False,
        tags=[],
        data_type="aws:ec2:image",
        tier=None,
        policies=None,
    )


def _warm() -> None:
    from moto.core.utils import get_service_model

    for service in WARM:
        get_service_model(service)
    # TerminateInstances tells these of each instance, and imports them at the first one.
    import moto.autoscaling.models
    import moto.elbv2.models  # noqa: F401
