from pathlib import Path

import pytest
from inspect_ai import eval as inspect_eval

from fleet_examples.elements import elements
from fleet_examples.elements_shell import elements_shell
from fleet_examples.scripted import provider


def test_elements_asks_236_questions_of_two_kinds() -> None:
    dataset = elements().dataset
    assert len(dataset) == len({sample.id for sample in dataset}) == 236
    assert dataset[25].input == "What is the chemical symbol of iron? Answer with the symbol alone."
    assert dataset[25].target == "Fe"


def test_elements_takes_other_kinds_and_refuses_unknown_ones() -> None:
    assert len(elements(kinds=["symbol", "number", "name", "block"]).dataset) == 472
    with pytest.raises(ValueError, match="no question of the kind colour"):
        elements(kinds="symbol,colour")


def test_elements_reports_each_kind_and_the_weakest(tmp_path: Path) -> None:
    assert provider.scripted
    [log] = inspect_eval(
        elements(), model="scripted/student", sample_id=["symbol-*", "number-H?"], log_dir=str(tmp_path), display="none"
    )
    assert log.results is not None
    metrics = {name: metric.value for name, metric in log.results.scores[0].metrics.items()}
    assert set(metrics) == {"accuracy", "stderr", "symbol", "number", "weakest_kind"}
    assert metrics["weakest_kind"] == min(metrics["symbol"], metrics["number"])


def test_elements_shell_counts_in_a_local_sandbox(tmp_path: Path) -> None:
    [log] = inspect_eval(
        elements_shell(sandbox="local"),
        model="scripted/chemist",
        sample_id="block-*",
        log_dir=str(tmp_path),
        display="none",
    )
    assert log.status == "success", log.error
    assert {str(sample.id): sample.output.completion for sample in log.samples or []} == {
        "block-s": "14",
        "block-p": "36",
        "block-d": "40",
        "block-f": "28",
    }
