from conftest_training import small, store  # noqa: F401
