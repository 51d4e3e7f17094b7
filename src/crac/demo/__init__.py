"""The whole way on made-up hearts: data, two trainings, an audit, maps, and one page that shows it all."""

from crac.demo.run import run_demo
from crac.demo.settings import DemoSettings

__all__ = ["DemoSettings", "run_demo"]
