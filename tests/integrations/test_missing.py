"""Every door without the tool behind it: one sentence with the command that installs it."""

import importlib
import subprocess
import sys

import pytest

from crac.errors import MissingExtraError

DOORS = {
    "crac.integrations.monai": ("monai", "monai"),
    "crac.integrations.lightning": ("lightning", "train"),
    "crac.integrations.nnunet.trainer": ("nnunetv2", "nnunet"),
}


@pytest.mark.parametrize("door", DOORS)
def test_missing_tool_is_one_sentence(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, extra = DOORS[door]
    monkeypatch.delitem(sys.modules, door, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"^{package} is not installed; run: pip install 'crac\[{extra}\]'$"):
        importlib.import_module(door)


def test_from_import_says_the_same() -> None:
    code = "import sys; sys.modules['monai'] = None; from crac.integrations import monai"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip().endswith("monai is not installed; run: pip install 'crac[monai]'")


def test_handler_without_ignite(monkeypatch: pytest.MonkeyPatch) -> None:
    monai = pytest.importorskip("crac.integrations.monai")
    import crac

    monkeypatch.setitem(sys.modules, "ignite", None)
    handler = monai.MultiplierHandler(monai.MonaiLoss(crac.CRaCLoss(2)))
    with pytest.raises(MissingExtraError, match=r"ignite is not installed; run: pip install 'crac\[monai\]'"):
        handler.attach(object())


def test_path_and_check_need_no_nnunet() -> None:
    code = (
        "import sys; sys.modules['nnunetv2'] = None\n"
        "import crac.integrations.nnunet.check, crac.integrations.nnunet.loss, crac.cli\n"
        "assert not {'monai', 'lightning', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "sys.exit(crac.cli.main(['nnunet', 'path']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("external")
