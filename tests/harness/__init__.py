"""The basis of all tests with real clients: server processes, raw RESP connections, figures of a process."""
