"""One region's AWS clients, made when first used and shared by all threads.

Endpoint and credentials are only what boto3 finds in the environment: nothing here knows a local cloud from a real one.
boto3 takes half a second to import, so that it waits for the first client.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

from fleet.aws.failures import refuse_what_is_no_json

if TYPE_CHECKING:
    import boto3
    from botocore.client import BaseClient
    from botocore.config import Config
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_iam import IAMClient
    from mypy_boto3_imagebuilder import ImagebuilderClient
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_ssm import SSMClient
    from mypy_boto3_sts import STSClient

    Make = Callable[[boto3.Session, Config], "Client"]

Client = TypeVar("Client", bound="BaseClient")

CONNECTIONS = 64
"""Connections a client keeps: above the threads of one worker, so that no thread waits for another's call."""
PATIENCE_S = 60.0
"""Seconds that AWS may take for one answer, as a rule."""
PRICING_REGION = "us-east-1"
"""The Pricing API answers for all regions, from few of them; this one is among them."""


def client_config(*, attempts: int | None = None, patience: float = PATIENCE_S) -> Config:
    """How every client of ours asks. `patience`: seconds for each answer, and for a connection (10 at most).

    Without `attempts`, botocore's default number holds, or the person's AWS_MAX_ATTEMPTS.
    """
    from botocore.config import Config

    return Config(
        retries={"mode": "standard"} if attempts is None else {"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=CONNECTIONS,
        connect_timeout=min(patience, 10),
        read_timeout=patience,
    )


class Aws:
    """The clients of one region. Cheap to make; safe to share between threads.

    Each property raises botocore's own errors where a client can't be made; `fleet.aws.failures.calling` names them.
    """

    def __init__(self, region: str, *, session: boto3.Session | None = None) -> None:
        """With a `session`, its credentials and endpoint count instead of the environment's."""
        self.region = region
        # Guards both fields below: boto3 makes clients from one session in one thread at a time.
        self._lock = threading.Lock()
        self._session = session
        self._clients: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"Aws({self.region!r})"

    @property
    def ec2(self) -> EC2Client:
        """EC2, with botocore's retries."""
        return self._kept("ec2", lambda session, config: session.client("ec2", config=config))

    @property
    def ec2_once(self) -> EC2Client:
        """EC2 without retries: a refused launch must reach the next candidate, not be asked for again."""
        return self._kept("ec2_once", lambda session, config: session.client("ec2", config=config), attempts=1)

    @property
    def ssm(self) -> SSMClient:
        """Parameters."""
        return self._kept("ssm", lambda session, config: session.client("ssm", config=config))

    @property
    def ssm_once(self) -> SSMClient:
        """Parameters without retries: every try of a write waits for its turn."""
        return self._kept("ssm_once", lambda session, config: session.client("ssm", config=config), attempts=1)

    @property
    def sqs(self) -> SQSClient:
        """Queues."""
        return self._kept("sqs", lambda session, config: session.client("sqs", config=config))

    @property
    def s3(self) -> S3Client:
        """Objects."""
        return self._kept("s3", lambda session, config: session.client("s3", config=config))

    @property
    def sts(self) -> STSClient:
        """Who calls."""
        return self._kept("sts", lambda session, config: session.client("sts", config=config))

    @property
    def iam(self) -> IAMClient:
        """Roles and instance profiles."""
        return self._kept("iam", lambda session, config: session.client("iam", config=config))

    @property
    def imagebuilder(self) -> ImagebuilderClient:
        """Image pipelines. Impatient: few regions lack it, and there its address answers nobody."""
        return self._kept(
            "imagebuilder", lambda session, config: session.client("imagebuilder", config=config), patience=10
        )

    @property
    def cloudformation(self) -> CloudFormationClient:
        """Stacks."""
        return self._kept("cloudformation", lambda session, config: session.client("cloudformation", config=config))

    @property
    def pricing(self) -> PricingClient:
        """Prices, of every region. Impatient: a price is worth a few seconds, and no more."""
        return self._kept(
            "pricing",
            lambda session, config: session.client("pricing", region_name=PRICING_REGION, config=config),
            attempts=1,
            patience=3,
        )

    @property
    def renews_credentials(self) -> bool:
        """Whether the credentials in use are of a kind that botocore gets anew by itself: of a login, a role, a process.

        Others stay as this process found them: whoever has better ones by now starts it again.
        """
        from botocore.credentials import RefreshableCredentials

        with self._lock:
            return self._session is not None and isinstance(self._session.get_credentials(), RefreshableCredentials)

    def _kept(
        self, name: str, make: Make[Client], *, attempts: int | None = None, patience: float = PATIENCE_S
    ) -> Client:
        """The client `name`, made by `make` once, with `client_config`."""
        with self._lock:
            if name not in self._clients:
                import boto3

                self._session = self._session or boto3.Session(region_name=self.region)
                self._clients[name] = client = make(self._session, client_config(attempts=attempts, patience=patience))
                if client.meta.service_model.resolved_protocol == "json":
                    client.meta.events.register("before-parse", refuse_what_is_no_json)
            return cast("Client", self._clients[name])
