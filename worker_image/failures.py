"""What can go wrong when an image is built, tried and published. Whatever it is, nothing of the build is left behind."""

from __future__ import annotations

from fleet.errors import FleetError


class ImageFailure(FleetError):
    """No new image was published; the pointer names what it named before."""


class BaseMissing(ImageFailure):
    """There is no base image to begin with."""

    parameter: str
    region: str
    why: str

    def message(self) -> str:
        """One line: parameter, region, reason."""
        return (
            f"no base image in {self.region}: Canonical's parameter {self.parameter} names none that can be launched ({self.why}). "
            "Is this a region where Canonical publishes Ubuntu?"
        )


class BuildFailed(ImageFailure):
    """A step of the bake failed, or the builder ended without a word."""

    build: str
    why: str
    log: str
    """Where the whole log is; empty: there is none."""
    tail: str
    """The log's last lines."""

    def message(self) -> str:
        """One line: build, reason, where the log is, its last words."""
        last = self.tail.strip().splitlines()[-1:] or ["(no output)"]
        return f"image build {self.build} failed: {self.why}. Log: {self.log or 'none'}. Its last line: {last[0]}"


class BuildTimedOut(ImageFailure):
    """The build took longer than it may."""

    build: str
    what: str
    minutes: float
    log: str

    def message(self) -> str:
        """One line: what took too long, where the log is."""
        return (
            f"image build {self.build} was given up: {self.what} took more than {self.minutes:g} minutes. "
            f"Log: {self.log or 'none'}. Try again; a build isn't resumed"
        )


class NotAllowed(ImageFailure):
    """The identity lacks a permission that building needs."""

    what: str
    why: str

    def message(self) -> str:
        """One line: the call, AWS's words, where the permissions are listed."""
        return f"this identity may not {self.what}: {self.why}. docs/image.md lists what building an image needs"


class CanaryFailed(ImageFailure):
    """The new image boots, but isn't fit; it has been removed."""

    image: str
    why: str
    log: str

    def message(self) -> str:
        """One line: the image, what isn't fit, where the report is, what holds now."""
        return (
            f"the new image {self.image} was rejected and removed: {self.why}. Report: {self.log}. "
            "Fleets go on with the image they had"
        )


class PointerNotMoved(ImageFailure):
    """SSM took the new value and didn't make it the parameter's: it checks an image's id on its own time."""

    parameter: str
    image: str
    seconds: float

    def message(self) -> str:
        """One line: the parameter, the image, what to do."""
        return (
            f"the parameter {self.parameter} doesn't name {self.image} after {self.seconds:g} seconds: SSM checks a value of type "
            "aws:ec2:image before it counts, with the caller's right to describe images. The image has been removed; build again"
        )
