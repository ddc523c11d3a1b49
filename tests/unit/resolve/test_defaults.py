"""The operator's configuration is read strictly: a typing error must not become a default."""

import pytest

from trtllm_engine.contract import Toolchain
from trtllm_operator.resolve.defaults import Defaults, DefaultsError


def test_nothing_configured_is_fine() -> None:
    assert Defaults.load(None) == Defaults()
    assert Defaults().toolchain is Toolchain.TORCH
    assert Defaults().retention_seconds == 7 * 24 * 3600


def test_keys_are_written_as_in_yaml() -> None:
    defaults = Defaults.load(
        {"engineImage": "mine:1", "toolchain": "torch", "accessModes": ["ReadWriteMany"], "buildCpu": 2}
    )

    assert (defaults.engine_image, defaults.toolchain, defaults.build_cpu) == ("mine:1", Toolchain.TORCH, "2")
    assert [mode.value for mode in defaults.access_modes] == ["ReadWriteMany"]


def test_every_wrong_key_is_named() -> None:
    with pytest.raises(DefaultsError) as caught:
        Defaults.load({"engineImagee": "a", "retentionSeconds": -1, "toolchain": "gcc"})

    text = str(caught.value)
    assert "config.engineImagee: unknown field; did you mean engineImage?" in text
    assert "config.retentionSeconds: -1 is not allowed" in text
    assert "config.toolchain" in text and "'torch'" in text
