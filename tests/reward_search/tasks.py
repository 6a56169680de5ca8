"""What the tests of this folder share."""

from __future__ import annotations

from pathlib import Path

from embodied_icrl.manipulation.planar_reach import PlanarReach

CORPUS = Path(__file__).parent / "corpus"
TASK = PlanarReach(horizon=40)
FIELDS = [field.name for field in TASK.fields]


def corpus(kind: str) -> dict[str, str]:
    """Name -> source of the files in a folder of the corpus."""
    return {path.stem: path.read_text() for path in sorted((CORPUS / kind).glob("*.py"))}


def rule_of(source: str) -> str:
    """The rule that the first line of an attack says it is stopped by."""
    return source.splitlines()[0].removeprefix("# stopped by: ")
