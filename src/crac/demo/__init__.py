"""The whole way on made-up hearts: data, two trainings, calibration, promises, maps, and one page of it all."""

from crac.demo.run import run_demo
from crac.demo.settings import DemoSettings

__all__ = ["DemoSettings", "run_demo"]
