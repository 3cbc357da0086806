"""`python -m bootstrap.engine`: Prefect's engine for the flow run that the environment names, quicker to start.

What the engine needs is imported undisturbed; then it is `python -m prefect.engine` as Prefect ships it. One interpreter,
where `prefect flow-run execute` needs two: cancelling and crash detection, the second one's duties, are the pool worker's.
"""

from __future__ import annotations

import runpy

from fleet.importing import undisturbed


def main() -> None:
    """Run the flow run to its end, as the engine does, exit codes included."""
    with undisturbed():
        import prefect.engine
        import prefect.flow_engine
        import prefect.flows
    # By path: as a module it has been imported already, and runpy would warn of two copies.
    runpy.run_path(prefect.engine.__file__, run_name="__main__")


if __name__ == "__main__":
    main()
