"""The basis of all tests here: one server process per test, raw RESP connections, figures of a process."""
