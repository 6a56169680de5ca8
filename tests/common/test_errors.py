from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from embodied_icrl.common.errors import MissingDependencyError, UserError, require


def test_require_returns_the_module() -> None:
    assert require("json", "nothing") is json
    assert require("json.decoder", "nothing") is sys.modules["json.decoder"]


@pytest.mark.parametrize("name", ["no_such_package", "no_such_package.inner.deep"])
def test_require_says_what_to_install(name: str) -> None:
    with pytest.raises(MissingDependencyError) as caught:
        require(name, "pip install 'embodied-icrl[ray]'")
    assert "no_such_package" in str(caught.value)
    assert "pip install 'embodied-icrl[ray]'" in str(caught.value)
    assert isinstance(caught.value, UserError)


def test_require_does_not_hide_the_package_s_own_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_installed.py").write_text("import its_missing_part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_missing_part"):
        require("half_installed", "pip install half_installed")
