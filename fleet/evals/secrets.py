"""What each instance of a run is given in secret: variables, and the values of settings. Checked before anything is created.

A run's secrets lie in one parameter an instance, `<path>/<instance id>`; each setting's values in one of their own beside
it, `<path>/<instance id>.env.<setting>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fleet.aws import parameter_rules
from fleet.errors import RequestRefused
from fleet.evals.variable_names import half_a_key, name_problem, value_problem

AN_INSTANCE = "i-0123456789abcdef0"
"""As long as any instance id, for a name that is checked before there is an instance."""


class SecretsRefused(RequestRefused):
    """The run's secrets can't be had, or can't be brought to an instance as they are."""

    problems: list[str]

    def message(self) -> str:
        """One line: all that is wrong."""
        return "; ".join(self.problems)


class RunSecrets:
    """Variables by name, and each setting's text by the setting's name. Shown, logged and pickled as nothing.

    Not a dataclass: Prefect looks into those on their way to a task.
    """

    def __init__(self, variables: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None) -> None:
        self._variables = dict(variables or {})
        self._settings = dict(settings or {})

    def variables(self) -> dict[str, str]:
        """Values by variable name."""
        return dict(self._variables)

    def settings(self) -> dict[str, str]:
        """Texts by setting name."""
        return dict(self._settings)

    def setting_names(self) -> list[str]:
        """Settings that have values; names are no secret."""
        return sorted(self._settings)

    def documents(self, parameter: str) -> list[tuple[str, dict[str, str]]]:
        """The parameters of one instance and what goes into each. The instance's own comes last: where it is, all are."""
        beside = [(setting_parameter(parameter, name), {name: self._settings[name]}) for name in self.setting_names()]
        return [*beside, (parameter, self.variables())]

    def __bool__(self) -> bool:
        return bool(self._variables or self._settings)

    def __repr__(self) -> str:
        return f"RunSecrets({len(self._variables)} variables, {len(self._settings)} settings)"

    def __reduce__(self) -> tuple[type[RunSecrets], tuple[()]]:
        return RunSecrets, ()


@dataclass(frozen=True, slots=True)
class ParameterPlace:
    """Where a run's parameters will lie."""

    path: str
    """Of the run: an instance's name follows."""
    region: str
    advanced: bool
    """Whether a parameter may cost money to hold more."""


def setting_parameter(parameter: str, setting: str) -> str:
    """The parameter of a setting's values, beside an instance's own `parameter`."""
    return f"{parameter}.env.{setting}"


def parameters_of(parameter: str, settings: Iterable[str]) -> list[str]:
    """All parameters of the instance whose own is `parameter`."""
    return [parameter, *(setting_parameter(parameter, setting) for setting in settings)]


def chosen(
    names: Sequence[str],
    environment: Mapping[str, str],
    *,
    kept: Mapping[str, str] | None = None,
    block: str | None = None,
    settings: Mapping[str, str] | None = None,
    place: ParameterPlace | None = None,
    problems: Sequence[str] = (),
) -> RunSecrets:
    """All of `kept` (a block's values), and of `environment` the names that are asked for and aren't there; with `settings`.

    SecretsRefused names everything that is wrong: the `problems` that are known already, names without a value, names and
    values that no process takes and, with a `place`, what SSM wouldn't take.
    """
    values = dict(kept or {})
    for name in names:
        if not values.get(name) and environment.get(name):
            values[name] = environment[name]
    secrets = RunSecrets(values, settings)
    problems = [*problems, *(problem for name in sorted({*names, *values}) if (problem := name_problem(name)))]
    if missing := [name for name in names if not values.get(name) and not name_problem(name)]:
        where = f"the worker-secrets block {block!r}" if block else "a worker-secrets block"
        problems.append(f"no value for {', '.join(missing)}: export it where the run starts, or put it into {where}")
    wrong = [
        f"the value of {name} can't be used: {why}" for name, value in values.items() if (why := value_problem(value))
    ]
    problems += wrong
    problems += [half] if (half := half_a_key(values)) else []
    if place and not wrong:  # what isn't text has no size
        problems += _refused_by_ssm(secrets, place)
    if problems:
        raise SecretsRefused(problems=problems)
    return secrets


def _refused_by_ssm(secrets: RunSecrets, place: ParameterPlace) -> list[str]:
    """What SSM wouldn't take of these secrets."""
    if not secrets:
        return []
    own = f"{place.path}/{AN_INSTANCE}"
    of_path = parameter_rules.name_problem(own, place.region)
    problems = [of_path] if of_path else []
    for name, values in secrets.documents(own):
        if not of_path and (why := parameter_rules.name_problem(name, place.region)):
            problems.append(why)
        what = "the secrets" if name == own else f"the values of the setting {', '.join(values)}"
        try:
            parameter_rules.tier_for(values, advanced=place.advanced, what=what)
        except parameter_rules.SecretsTooLarge as refused:
            problems.append(refused.message())
    return problems
