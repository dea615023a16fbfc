"""What every test here stands on: one server process per test, raw RESP connections, figures of a process."""
