"""Building by EC2 Image Builder, where the account's stack has a pipeline; and which builder an account gets.

The pipeline's component fetches the bundle from a fixed key, runs the same `drive.py` as a builder instance, and Image Builder does
the rest: launch, snapshot, end. Its own recipe names the base image, the instance types and the volume. The tags that differ from
build to build are set when the image is there, which is before anything reads them.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from fleet.aws.failures import AwsRefused, Denied, Unreachable, calling
from fleet.aws.identity import caller
from worker_image.amis import Amis, OwnImage
from worker_image.builder import Base, Builder, BuilderInstance
from worker_image.failures import BuildFailed, BuildTimedOut, ImageFailure, NotAllowed
from worker_image.names import BuildNames, pipeline_name
from worker_image.place import Place, denied_words
from worker_image.recipe import Architecture

Choice = Literal["auto", "instance", "pipeline"]

NO_PIPELINE = frozenset({"ResourceNotFoundException", "InvalidParameterValueException"})
PIPELINE_MINUTES = 120.0
FAILED = frozenset({"CANCELLED", "FAILED", "DELETED", "DEPRECATED", "DISABLED"})


class PipelineAbsent(ImageFailure):
    """The account has no pipeline, and one was asked for."""

    name: str
    region: str
    why: str

    def message(self) -> str:
        """One line: which, where, why, what else there is."""
        return (
            f"no Image Builder pipeline {self.name} in {self.region} ({self.why}). docs/image.md says how to add it; or build with "
            "--builder instance"
        )


def bundle_key(prefix: str, architecture: Architecture) -> str:
    """Where the pipeline's component fetches the bundle of an architecture: a pipeline can't be told another one each time."""
    return f"{prefix}/image/{architecture}/bundle.zip"


class ImagePipeline:
    """The account's own pipeline for an architecture."""

    name = "the account's Image Builder pipeline"

    def __init__(self, place: Place, arn: str) -> None:
        self.place = place
        self.arn = arn
        self.amis = Amis(place)
        self.running: str | None = None
        """ARN of the image that is being built; what `cancel` cancels."""

    def build(self, names: BuildNames, base: Base) -> OwnImage:
        """See `Builder`. An execution that is under way when this fails is cancelled, and Image Builder removes what it made."""
        place = self.place
        place.objects.put(bundle_key(place.prefix, names.recipe.architecture), names.recipe.bundle)
        try:
            with calling("imagebuilder", self.arn):
                started = place.aws.imagebuilder.start_image_pipeline_execution(
                    imagePipelineArn=self.arn, clientToken=names.id
                )
        except AwsRefused as refusal:
            if words := denied_words(refusal):
                raise NotAllowed(what=words[0], why=words[1]) from refusal
            raise
        self.running = started["imageBuildVersionArn"]
        try:
            ami = self._follow(names, self.running)
        except BaseException:  # cancellation too: nobody else knows of this execution
            self.cancel(names)
            raise
        image = self.amis.get(ami)
        if image is None:
            raise BuildFailed(build=names.id, why=f"Image Builder made {ami}, which EC2 doesn't know", log="", tail="")
        try:
            self.amis.adopt(image, names.image_tags())
        except Denied as denied:
            place.say(f"{ami}, which Image Builder has made, stays without our tags: nothing of ours removes it")
            raise NotAllowed(what=f"{denied.service}:{denied.operation}", why=denied.why or denied.code) from denied
        return dataclasses.replace(image, tags={**image.tags, **names.image_tags()})

    def cancel(self, names: BuildNames) -> None:
        """Ask Image Builder to end the execution; one that has ended already is none to cancel."""
        if self.running is None:
            return
        try:
            with calling("imagebuilder", self.running):
                self.place.aws.imagebuilder.cancel_image_creation(
                    imageBuildVersionArn=self.running, clientToken=f"{names.id}-cancel"
                )
        except AwsRefused as refusal:
            self.place.say(f"the execution {self.running} could not be cancelled: {refusal}")

    def _follow(self, names: BuildNames, image: str) -> str:
        """The id of the AMI of this region. BuildFailed, BuildTimedOut."""
        patience = self.place.patience
        began = patience.clock()
        last = ""
        while True:
            with calling("imagebuilder", image):
                found = self.place.aws.imagebuilder.get_image(imageBuildVersionArn=image)["image"]
            state = found.get("state", {})
            status, reason = state.get("status", "PENDING"), state.get("reason", "")
            if status != last:
                self.place.say(f"Image Builder: {status.lower()}")
                last = status
            if status == "AVAILABLE":
                amis = found.get("outputResources", {}).get("amis", [])
                here = [ami["image"] for ami in amis if ami.get("region") == self.place.region and ami.get("image")]
                if here:
                    return here[0]
                raise BuildFailed(
                    build=names.id, why=f"the pipeline distributes no AMI to {self.place.region}", log=image, tail=""
                )
            if status in FAILED:
                raise BuildFailed(
                    build=names.id, why=f"Image Builder ended as {status.lower()}", log=image, tail=reason
                )
            if patience.clock() - began > PIPELINE_MINUTES * 60:
                raise BuildTimedOut(build=names.id, what="Image Builder", minutes=PIPELINE_MINUTES, log=image)
            patience.sleep(patience.every)


def chosen_builder(place: Place, architecture: Architecture, choice: Choice = "auto") -> Builder:
    """The account's pipeline where it has one, else a builder instance. PipelineAbsent: one was asked for and isn't there.

    An identity that may not see pipelines, and a region or cloud without the service, have none.
    """
    if choice == "instance":
        return BuilderInstance(place)
    name = pipeline_name(architecture)
    who = caller(place.aws)
    partition = who.arn.split(":")[1]
    arn = f"arn:{partition}:imagebuilder:{place.region}:{who.account}:image-pipeline/{name}"
    try:
        with calling("imagebuilder", name):
            place.aws.imagebuilder.get_image_pipeline(imagePipelineArn=arn)
    except AwsRefused as refusal:
        if not (refusal.code in NO_PIPELINE or isinstance(refusal, Denied | Unreachable)):
            raise
        if choice == "pipeline":
            raise PipelineAbsent(name=name, region=place.region, why=refusal.code) from refusal
        return BuilderInstance(place)
    return ImagePipeline(place, arn)
