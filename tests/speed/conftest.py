"""The store that the training tests share."""

from conftest_training import store  # noqa: F401
