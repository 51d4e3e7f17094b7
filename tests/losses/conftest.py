import pytest
import torch


@pytest.fixture
def fresh_compiler():
    """All methods share one ``forward``, which the compiler would count as one function compiled too often."""
    torch.compiler.reset()
