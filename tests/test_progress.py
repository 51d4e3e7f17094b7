"""What is said about long work."""

from crac.progress import duration


def test_durations_are_hours_minutes_and_seconds() -> None:
    assert [duration(seconds) for seconds in (0.4, 89.6, 7200)] == ["0:00:00", "0:01:30", "2:00:00"]
