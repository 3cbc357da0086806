"""The AWS clients of a job configuration, kept for as long as the pool worker lives and never stale.

Without a credentials block they are boto3's own, which renew themselves. A block that assumes a role gets credentials that
are renewed before they run out; the block's own session would hold the first ones for ever, and a pool worker that watches
an instance for a day would go blind after an hour.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config
from botocore.credentials import (
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
    create_assume_role_refresher,
)
from botocore.session import Session as CoreSession
from prefect_aws.credentials import AwsCredentials

from fleet.aws.session import Aws, client_config

if TYPE_CHECKING:
    from botocore.credentials import Credentials

SESSION_NAME = "inspect-fleet-pool-worker"


class Access:
    """Clients by region and credentials block: equal blocks share them. Safe to use from threads."""

    def __init__(self) -> None:
        # Guards the table: runs that start together make each client set once.
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], Aws] = {}

    def of(self, block: AwsCredentials | None, region: str) -> Aws:
        """The clients of this block in this region; of a block with nothing set: boto3's own."""
        own = block is None or is_empty(block)
        key = (region, "" if own or block is None else _content(block))
        with self._lock:
            if key not in self._known:
                session = None if own or block is None else _BlockSession(block, region)
                self._known[key] = Aws(region, session=session)
            return self._known[key]


def is_empty(block: AwsCredentials) -> bool:
    """Whether nothing of the block is set, apart from its region: the job variable `region` decides that."""
    return _content(block) == _content(AwsCredentials(region_name=block.region_name))


def _content(block: AwsCredentials) -> str:
    """A digest of all that counts in a block: a key of a table must not show a secret."""
    parts = repr(
        (
            block.aws_access_key_id,
            block.aws_secret_access_key.get_secret_value() if block.aws_secret_access_key else None,
            block.aws_session_token,
            block.profile_name,
            block.aws_client_parameters.model_dump(),
            block.assume_role_arn,
            block.assume_role_kwargs.model_dump(),
        )
    )
    return hashlib.sha256(parts.encode()).hexdigest()


class _BlockSession(boto3.Session):
    """A session whose clients get the block's client parameters, and credentials that renew themselves."""

    def __init__(self, block: AwsCredentials, region: str) -> None:
        parameters = block.aws_client_parameters.get_params_override()
        parameters.pop("region_name", None)
        self._parameters = parameters
        if not block.assume_role_arn:
            secret = block.aws_secret_access_key
            super().__init__(
                aws_access_key_id=block.aws_access_key_id,
                aws_secret_access_key=secret.get_secret_value() if secret else None,
                aws_session_token=block.aws_session_token,
                profile_name=block.profile_name,
                region_name=region,
            )
            return
        core = CoreSession()
        core.register_component("credential_provider", CredentialResolver([_RoleProvider(block, region)]))
        super().__init__(botocore_session=core, region_name=region)

    def client(self, service_name: str, *arguments: Any, config: Config | None = None, **more: Any) -> Any:
        """A client; what the caller asks for counts more than what the block says."""
        merged = {**self._parameters, **more}
        own = merged.pop("config", None)
        made: Any = super().client
        return made(
            service_name,
            *arguments,
            config=own.merge(config) if own and config else config or own,
            **merged,
        )


class _RoleProvider(CredentialProvider):
    """Credentials of the block's role, asked for when first used and again before they run out."""

    METHOD = "assume-role"

    def __init__(self, block: AwsCredentials, region: str) -> None:
        super().__init__()
        wanted = {"RoleSessionName": SESSION_NAME, **block.assume_role_kwargs.get_params_override()}
        plain = block.model_copy(update={"assume_role_arn": None, "region_name": region})
        # As the block does it: its client parameters are for the services, an address of EC2 is none of STS.
        sts = plain.get_boto3_session().client("sts", config=client_config())
        self._refresh = create_assume_role_refresher(sts, {**wanted, "RoleArn": block.assume_role_arn})

    def load(self) -> Credentials:
        return DeferredRefreshableCredentials(refresh_using=self._refresh, method=self.METHOD)
