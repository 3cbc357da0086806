"""Which names and values an environment variable of a job may have.

A secret becomes an environment variable of the processes that run jobs, and of nothing else on an instance. A name is refused
where the value would never arrive, or would keep such a process from its work; each with its reason. Keys of AWS are
welcome, since some model providers take them, but only as a set: half of one stops every AWS client of a job.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

SHELL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_JOBS_OWN = "every job gets its own"
_OPTION = "it is an option of an eval, and those come from the request alone"
_NOT_HERE = "it names what an instance doesn't have: pass AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

RESERVED: Mapping[str, str] = {
    **dict.fromkeys(("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "TMPDIR"), _JOBS_OWN),
    **dict.fromkeys(("PYTHONHASHSEED", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "INSPECT_DISPLAY"), _JOBS_OWN),
    **dict.fromkeys(("GIT_CEILING_DIRECTORIES", "TQDM_DISABLE", "DOCKER_CONFIG", "UV_CACHE_DIR"), _JOBS_OWN),
    **dict.fromkeys(("HF_HUB_DISABLE_TELEMETRY", "HF_HUB_DISABLE_PROGRESS_BARS"), _JOBS_OWN),
    **dict.fromkeys(
        ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONEXECUTABLE", "PYTHONDONTWRITEBYTECODE"),
        "it would change which Python code a job runs",
    ),
    **dict.fromkeys(
        ("BASH_ENV", "SHELLOPTS", "BASHOPTS", "IFS"), "it would change what every shell script of a job does"
    ),
    "INSPECT_DEBUG": _OPTION,
    **dict.fromkeys(("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_CONFIG_FILE"), _NOT_HERE),
    **dict.fromkeys(("AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"), _NOT_HERE),
    **dict.fromkeys(
        ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_ROLE_ARN"), _NOT_HERE
    ),
}
RESERVED_PREFIXES: Mapping[str, str] = {
    "GIT_CONFIG_": _JOBS_OWN,
    **dict.fromkeys(("LD_", "DYLD_"), "it would load other code into every process of a job"),
    **dict.fromkeys(("PREFECT", "FLEET_"), "it belongs to what runs the jobs, and is kept from them"),
    **dict.fromkeys(("INSPECT_EVAL_", "INSPECT_LOG_"), _OPTION),
}
LOG_LEVEL = "INSPECT_LOG_LEVEL"
"""How much Inspect says on a terminal, or into a runner's log."""
ALLOWED = frozenset({"INSPECT_EVAL_NOTIFICATION", LOG_LEVEL})
"""Of the prefixes, what is no option of an eval."""

KEY_PAIR = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
SESSION_TOKEN = "AWS_SESSION_TOKEN"  # noqa: S105 - the variable's name


def name_problem(name: str) -> str:
    """Why a secret can't have this name; empty: it can."""
    if not SHELL_NAME.fullmatch(name):
        why = "letters, digits and `_` are allowed, and no digit in front"
    elif name in ALLOWED:
        return ""
    else:
        prefixes = (reason for prefix, reason in RESERVED_PREFIXES.items() if name.startswith(prefix))
        why = RESERVED.get(name) or next(prefixes, "")
    return f"{name!r} can't be a secret's name: {why}" if why else ""


def value_problem(value: str) -> str:
    """Why no process can be given this text; empty: it can. Says nothing of the text itself."""
    if "\0" in value:
        return "it contains a NUL byte, which no environment variable can"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "it isn't UTF-8 text"
    return ""


def half_a_key(values: Mapping[str, str]) -> str:
    """Why these AWS keys are no use; empty: there are none, or whole ones."""
    given = [name for name in KEY_PAIR if name in values]
    if len(given) == 1 or (not given and SESSION_TOKEN in values):
        named = given[0] if given else SESSION_TOKEN
        return f"{named} is of no use alone: AWS takes {' and '.join(KEY_PAIR)} together"
    return ""
