"""Launching: Triton's private launcher where it works, Triton's public way where it does not."""

from typing import Any

import pytest
import torch

from crac.errors import InputError
from crac.kernels import start as starting
from crac.kernels.start import Plan, start


class Kernel:
    """Stands for a jitted function; ``launcher`` stands for what Triton compiles it to."""

    arg_names = ("tensor", "number", "K")

    def __init__(self, launcher: Any) -> None:
        self.launcher = launcher
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def launch(*arguments: Any, **constants: Any) -> Any:
            self.launches.append((grid, *arguments, constants))
            return self.launcher

        return launch


class Launcher:
    """Records what reaches it, or raises an error."""

    def __init__(self, error: Exception | None = None, after: int = 0) -> None:
        self.error, self.after = error, after
        self.launches: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, int, int]) -> Any:
        def run(*arguments: Any, stream: int) -> None:
            if self.error is not None and len(self.launches) >= self.after:
                raise self.error
            self.launches.append((grid, *arguments))

        return run


@pytest.fixture(autouse=True)
def _untried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_direct", None)
    monkeypatch.setattr(starting, "current_stream", lambda _: 0)


@pytest.fixture
def plan() -> Plan:
    return Plan((2, 1, 1), (7,), {"K": 3, "num_warps": 4})


def test_the_second_launch_is_direct(plan: Plan) -> None:
    launcher, tensor = Launcher(), torch.zeros(4)
    kernel = Kernel(launcher)
    for _ in range(3):
        start(kernel, plan, [tensor])
    assert len(kernel.launches) == 1
    assert launcher.launches == 2 * [((2, 1, 1), tensor.data_ptr(), 7, 3)]
    start(kernel, plan, [tensor.double()])  # another dtype is another kernel
    assert len(kernel.launches) == 2


@pytest.mark.parametrize("error", [TypeError("arguments"), AttributeError("run"), RuntimeError("signature")])
def test_a_launcher_that_refuses_is_not_asked_again(plan: Plan, error: Exception) -> None:
    kernel, tensor = Kernel(Launcher(error)), torch.zeros(4)
    for number in range(1, 4):
        start(kernel, plan, [tensor])
        assert len(kernel.launches) == number
        assert kernel.launches[-1] == ((2, 1, 1), tensor, 7, {"K": 3, "num_warps": 4})
    other = Kernel(Launcher())
    for _ in range(3):
        start(other, Plan((1, 1, 1), (), {}), [tensor])
    assert len(other.launches) == 3
    assert not other.launcher.launches


@pytest.mark.parametrize("broken", [object(), Kernel(None)])
def test_a_launcher_that_cannot_be_set_up(plan: Plan, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(broken)
    if isinstance(broken, Kernel):
        monkeypatch.setattr(kernel, "arg_names", None)
    for number in range(1, 4):
        start(kernel, plan, [torch.zeros(4)])
        assert len(kernel.launches) == number


def test_an_error_of_a_launcher_that_has_worked_is_the_caller_s(plan: Plan) -> None:
    kernel, tensor = Kernel(Launcher(RuntimeError("out of memory"), after=1)), torch.zeros(4)
    start(kernel, plan, [tensor])
    start(kernel, plan, [tensor])
    with pytest.raises(RuntimeError, match="out of memory"):
        start(kernel, plan, [tensor])
    assert len(kernel.launches) == 1


def test_an_error_of_both_ways_is_the_caller_s(plan: Plan) -> None:
    class Broken(Kernel):
        def __getitem__(self, grid: tuple[int, int, int]) -> Any:
            if self.launches:
                raise RuntimeError("illegal memory access")
            return super().__getitem__(grid)

    kernel = Broken(Launcher(RuntimeError("illegal memory access")))
    start(kernel, plan, [torch.zeros(4)])
    with pytest.raises(RuntimeError, match="illegal memory access"):
        start(kernel, plan, [torch.zeros(4)])


def test_the_stream_is_known_without_tritons_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(starting, "driver", object())

    class Stream:
        cuda_stream = 5

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream)
    assert starting.current_stream(0) == 5


def test_a_loss_left_on_another_device_is_named(plan: Plan) -> None:
    """Addresses of two devices in one launch would be read from the wrong memory."""
    kernel = Kernel(Launcher())

    class Elsewhere(torch.Tensor):
        device = torch.device("cuda:1")

        def get_device(self) -> int:
            return 1

    with pytest.raises(InputError, match=r"see loss\.to\(device\); got tensors on cpu, cuda:1"):
        start(kernel, plan, [torch.zeros(4), None, torch.zeros(4).as_subclass(Elsewhere)])
    assert not kernel.launches
