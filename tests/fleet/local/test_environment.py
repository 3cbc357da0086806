from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.local import environment

FOLDER, CACHE = Path("/clouds/a"), Path("/cache")
names = st.text(st.characters(codec="ascii", categories=["Lu", "Nd"], include_characters="_"), min_size=1, max_size=8)


@given(
    st.dictionaries(st.tuples(st.sampled_from(["PREFECT_", "PREFECT__", "AWS_", "OTHER_"]), names), st.just("theirs"))
)
def test_no_variable_of_the_persons_prefect_or_aws_reaches_a_part(theirs: dict[tuple[str, str], str]) -> None:
    environ = {prefix + name: value for (prefix, name), value in theirs.items()}
    kept = environment.own(environ, folder=FOLDER, part="host", cache=CACHE)
    assert not [name for name in kept if name.startswith(("PREFECT", "AWS_"))]
    assert {name for name in environ if name.startswith("OTHER_")} <= kept.keys()


def test_a_part_is_found_by_its_mark() -> None:
    kept = environment.own({}, folder=FOLDER, part="server", cache=CACHE)
    assert kept["FLEET_LOCAL_INSTANCE"] == "/clouds/a:server"


def test_a_proxy_is_not_asked_for_what_is_on_this_machine() -> None:
    kept = environment.own({"HTTP_PROXY": "http://proxy", "no_proxy": "corp"}, folder=FOLDER, part="host", cache=CACHE)
    assert kept["NO_PROXY"] == kept["no_proxy"] == "corp,127.0.0.1,localhost"


def test_byte_code_goes_to_the_cache_where_the_tree_must_stay_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    kept = environment.own({"PYTHONDONTWRITEBYTECODE": "1"}, folder=FOLDER, part="host", cache=CACHE)
    assert "PYTHONDONTWRITEBYTECODE" not in kept
    assert kept["PYTHONPYCACHEPREFIX"] == "/cache/bytecode"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert "PYTHONPYCACHEPREFIX" not in environment.own({}, folder=FOLDER, part="host", cache=CACHE)


def test_every_file_that_the_libraries_look_for_is_looked_for_in_the_clouds_folder() -> None:
    variables = {**environment.aws(FOLDER, "http://a"), **environment.prefect(FOLDER, "http://p/api")}
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "PREFECT_HOME", "PREFECT_PROFILES_PATH"):
        assert Path(variables[name]).is_relative_to(FOLDER), name
    assert variables["AWS_EC2_METADATA_DISABLED"] == "true"
