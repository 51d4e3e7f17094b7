"""Lets nnU-Net start where the installed torchvision was built for a GPU and torch for the CPU.

nnU-Net imports timm, which imports torchvision, whose Python registers shape functions for operators that its GPU
binary cannot load beside a CPU build of torch. nnU-Net uses none of them.
"""

import torch

_register_fake = torch.library.register_fake


def _without_torchvision(operator, *arguments, **keywords):
    if isinstance(operator, str) and operator.startswith("torchvision::"):
        return lambda function: function
    return _register_fake(operator, *arguments, **keywords)


torch.library.register_fake = _without_torchvision
