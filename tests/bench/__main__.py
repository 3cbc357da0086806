"""`make bench`: ratios, ours beside the plain way, each taken in one run."""

from __future__ import annotations

from tests.bench import merge


def main() -> None:
    """Measure one after the other, and print."""
    for line in merge.measure().lines():
        print(line)  # noqa: T201


if __name__ == "__main__":
    main()
