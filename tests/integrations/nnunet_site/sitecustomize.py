"""Put on ``PYTHONPATH`` so that nnU-Net starts on a machine made for tests.

Where torch is a CPU build and torchvision is not, importing torchvision fails: it registers shape functions for
operators that its binary could not load. nnU-Net imports it, by way of timm, and uses none of them.

With ``CRAC_TEST_WITHOUT_CRAC`` set, the process is one of somebody who never installed ``crac``.
"""

import os
import sys

import torch

_register_fake = torch.library.register_fake


def _without_torchvision(operator, *arguments, **keywords):
    if isinstance(operator, str) and operator.startswith("torchvision::"):
        return lambda function: function
    return _register_fake(operator, *arguments, **keywords)


torch.library.register_fake = _without_torchvision
if os.environ.get("CRAC_TEST_WITHOUT_CRAC"):
    sys.modules["crac"] = None
