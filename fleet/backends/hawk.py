"""A Hawk deployment: the flow `run_eval`, called in this process, with Prefect where the environment says it is, or its own.

What Hawk can't keep of a request, secrets that can't be had, an address that is none and a login that isn't good end the run
before a flow run exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from blocks.ec2_config import Ec2Config
from fleet.account.change import ServerUnreachable
from fleet.backends import Backend
from fleet.backends.flow import call_run_eval
from fleet.evals.delivery import check_log_dir
from fleet.evals.listener import Listener
from fleet.evals.report import RunReport
from fleet.evals.request import EvalRequest
from fleet.evals.secrets import chosen
from fleet.hawk.api import HawkApi
from fleet.hawk.sending import to_send
from fleet.importing import undisturbed

OWN_SERVER = "(Prefect's own for this run, since none is configured)"
OWN_SERVER_S = 180
"""Seconds that Prefect's own server gets to begin. At its first start on a machine it makes its database, for which the 20 that
Prefect gives it don't do where the machine is busy."""


class HawkBackend(Backend):
    """Sends requests to a Hawk deployment through Prefect."""

    def __init__(
        self,
        config: Ec2Config,
        follower: Listener,
        *,
        deployment: str = "default",
        worker_secrets: str | None = None,
    ) -> None:
        self._config = config
        self._follower = follower
        self._deployment = deployment
        self._worker_secrets = worker_secrets

    def resolvable(self, name: str) -> bool:
        """No name is: Hawk's runner is the first to install what has it."""
        return False

    def run(self, request: EvalRequest, *, upload: bool = True) -> RunReport:
        """See `Backend.run`. Also RunCancelled; HawkError. Without `upload` the logs stay at Hawk, as the report says."""
        check_log_dir(request.log_dir)
        # As the flow will, which asks again: between the two a checkout may have changed, and a login ended.
        made = to_send(request, self._config.model_dump(exclude_defaults=True))
        if not self._worker_secrets:
            chosen(request.secrets, os.environ)
        for warning in made.warnings:
            self._follower.warn(warning)
        with self._asking_prefect():
            api = self._api()
            if self._worker_secrets:
                self._check_secrets(request)
        api.job_status(made.id)
        if not upload:
            request = request.model_copy(update={"log_dir": None})
        return call_run_eval(
            request,
            self._follower,
            config=self._config,
            worker_secrets=self._worker_secrets,
            backend="hawk",
            hawk=self._deployment,
        )

    def _api(self) -> HawkApi:
        """The deployment. HawkUnknown."""
        from blocks.hawk import hawk_deployment

        return hawk_deployment(self._deployment).api()

    def _check_secrets(self, request: EvalRequest) -> None:
        """SecretsRefused: the block, or a value that it should have."""
        from blocks.secrets import named_secrets

        named_secrets(request, self._worker_secrets)

    @contextmanager
    def _asking_prefect(self) -> Iterator[None]:
        """Around whatever loads a block. ServerUnreachable."""
        import httpx

        # Prefect's settings are read as it is imported.
        with undisturbed():
            from prefect.settings import (
                PREFECT_API_URL,
                PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS,
                temporary_settings,
            )

        url = PREFECT_API_URL.value()
        if not url:
            self._follower.stage("Starting a Prefect server for this run")
        try:
            with temporary_settings({PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS: OWN_SERVER_S}):
                yield
        except (httpx.HTTPError, RuntimeError) as error:
            if url and isinstance(error, RuntimeError):  # what Prefect says of its own server; else a bug
                raise
            raise ServerUnreachable(url=url or OWN_SERVER, why=str(error) or type(error).__name__) from error
