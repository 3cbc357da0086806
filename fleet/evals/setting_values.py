"""The values of settings: the text of `<checkout>.env`, which lies beside a setting's checkout and never travels with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.evals.secrets import SecretsRefused
from fleet.evals.settings import settings_by_name, values_file


def values_beside(checkouts: Mapping[str, Path]) -> dict[str, str]:
    """The text beside each setting's checkout, by the setting's name; settings without such a file have none.

    SecretsRefused names each file that can't be read or isn't text that a process takes.
    """
    texts: dict[str, str] = {}
    problems: list[str] = []
    for name, checkout in checkouts.items():
        path = values_file(checkout)
        try:
            text = path.read_bytes().decode()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            problems.append(f"the values of the setting {name} can't be read: {path}: {error.strerror}")
        except UnicodeDecodeError:
            problems.append(f"the values of the setting {name} aren't UTF-8 text: {path}")
        else:
            if "\0" in text:
                problems.append(f"the values of the setting {name} contain a NUL byte: {path}")
            texts[name] = text
    if problems:
        raise SecretsRefused(problems=problems)
    return texts


def setting_values(settings: Sequence[str]) -> dict[str, str]:
    """The values of a request's settings, by setting name. SecretsRefused; SettingRefused: a name that can't be."""
    return values_beside(settings_by_name(settings))
