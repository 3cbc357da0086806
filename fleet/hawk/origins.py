"""Where a runner on Hawk gets what a registry name names: the package to install, and the name within it. Pure; facts: Hawk 3.7.2.

Hawk wants each task, solver and model under the package that it comes from: what to install, and the name of the entry point
by which Inspect finds it, with which its registry name begins. Inspect's own come under `inspect-ai`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleet.hawk.pushed import NotPushed, PushedSource
from fleet.hawk.requirements import canonical, has_credentials, name_of

INSPECT = "inspect-ai"

PROVIDERS = {
    **dict.fromkeys(
        (
            "deepseek",
            "fireworks",
            "litellm-proxy",
            "llama-cpp-python",
            "meta",
            "moonshot",
            "ollama",
            "openai",
            "openai-api",
            "openai-api-completions",
            "openrouter",
            "perplexity",
            "sambanova",
            "together",
        ),
        "openai",
    ),
    "anthropic": "anthropic",
    "azureai": "azure-ai-inference",
    "google": "google-genai",
    "grok": "xai-sdk",
    "groq": "groq",
    "mistral": "mistralai",
}
"""Inspect's own providers, by the distribution that each calls through."""

_WITH_SERVICE = frozenset({"anthropic", "google", "mistral", "openai"})
_SERVICES = frozenset({"azure", "bedrock", "vertex"})
_WITH_LAB = frozenset({"openai-api"})
_WHOLE_NAMES = frozenset({"openrouter", "together"})
"""Hawk's gateway knows their models with the provider before the name."""

NO_MODEL = frozenset({"none", "none/none"})
"""Inspect's models that are none."""

AGENTS = frozenset({"deepagent", "human_cli", "react"})
"""Inspect's own agents that may take a solver's place; Hawk has a field of their own for them."""

_FORBIDDEN = re.compile(r"inspect[-_]ai")


@dataclass
class Origins:
    """What a request installs, and what of it is under which name. Collects what can't be found."""

    packages: Sequence[str]
    source: PushedSource | NotPushed | None
    problems: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    """Requirements that the request doesn't name and a provider needs."""

    def registered(self, what: str, name: str) -> dict[str, Any]:
        """Package and name within it of a task or solver, as Hawk's configuration has them; `what` it is, for a person."""
        prefix, _, rest = name.partition("/")
        package = self._package(prefix)
        if package is None and not isinstance(self.source, NotPushed):
            self.problems.append(
                f"nothing that the request installs has the {what} {name}: name its package in packages, or register it in "
                f"the source's pyproject.toml ([project.entry-points.inspect_ai], {prefix} = …)"
            )
        elif package and _FORBIDDEN.search(package):
            self.problems.append(
                f"the {what} {name} comes from {package}, and Hawk refuses names with inspect-ai in that place: give the "
                "package, or its repository, another name"
            )
        return {"package": package or "", "name": prefix, "item": rest}

    def model(self, name: str) -> dict[str, Any]:
        """The same of a model, by its Inspect name."""
        parts = name.split("/")
        provider = parts[0]
        if provider in _WHOLE_NAMES:
            self.added.append(PROVIDERS[provider])
            return {"package": INSPECT, "item": name}
        long = len(parts) > 2 and (provider in _WITH_LAB or (provider in _WITH_SERVICE and parts[1] in _SERVICES))
        split = 2 if long else 1
        package = PROVIDERS.get(provider) or self._package(provider, known=True)
        if package is None or _FORBIDDEN.search(package):
            return {"package": INSPECT, "item": name}
        return {"package": package, "name": "/".join(parts[:split]), "item": "/".join(parts[split:])}

    def _package(self, prefix: str, *, known: bool = False) -> str | None:
        """What of the request is to be installed for registry names with this prefix; `known`: only where that is said.

        All of it is installed in any case. A distribution may have another name than its entry points: then it is any that
        nothing is known of.
        """
        source = self.source if isinstance(self.source, PushedSource) else None
        if source and source.provides is not None and prefix in source.provides:
            return source.url
        named = [(text, name_of(text)) for text in self.packages]
        for _, name in named:
            if name and canonical(name) == canonical(prefix):
                return name
        if known:
            return None
        if source and source.provides is None:
            return source.url
        others = [name or text for text, name in named if canonical(name) != INSPECT and not has_credentials(text)]
        return others[0] if others else None


def grouped(found: Mapping[str, Any], **item: Any) -> dict[str, Any]:
    """One item of Hawk's configuration under its package."""
    return {
        "package": found["package"],
        **({"name": found["name"]} if "name" in found else {}),
        "items": [{"name": found["item"], **item}],
    }


def own(solver: str) -> bool:
    """Whether a solver is Inspect's own."""
    return "/" not in solver or solver.startswith("inspect_ai/")


def own_agent(solver: str) -> bool:
    """Whether it is an agent of Inspect's own."""
    return own(solver) and solver.removeprefix("inspect_ai/") in AGENTS
