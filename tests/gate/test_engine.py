"""Tests that the engine names no command: what it decides about a command is a field or a flag of its row."""

import re
import unittest
from pathlib import Path

CRATES = Path(__file__).parents[2] / "crates"
# Texts that are also names of commands, but mean something else: clients, families, flags, events, messages.
OTHER_MEANINGS = {
    ("channel_reader.rs", "xsubscribe"),
    ("channel_reader.rs", "xunsubscribe"),
    ("clients.rs", "client"),
    ("clients.rs", "pubsub"),
    ("clients/waiter.rs", "client"),
    ("observe/latency.rs", "command"),
    ("row.rs", "pubsub"),
    ("row.rs", "set"),
    ("row/flags.rs", "pubsub"),
    ("row/flags.rs", "readonly"),
    # A state of a link.
    ("replication.rs", "sync"),
    ("unit.rs", "del"),
}


def commands() -> set[str]:
    files = (CRATES / "commands/src").rglob("*.rs")
    return {name for file in files for name in re.findall(r'\bname: "([a-z][\w.|-]*)"', file.read_text("utf-8"))}


def texts(file: Path) -> set[str]:
    """The string literals of production code."""
    code = file.read_text("utf-8").split("#[cfg(test)]\nmod tests")[0]
    code = "\n".join(line for line in code.splitlines() if not line.lstrip().startswith("//"))
    return {text.lower() for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code)}


class Engine(unittest.TestCase):
    maxDiff = None

    def test_the_engine_names_no_command(self):
        known, root = commands(), CRATES / "engine/src"
        self.assertGreater(len(known), 300)
        found: dict[str, set[str]] = {}
        for file in root.rglob("*.rs"):
            name = str(file.relative_to(root))
            if "tests" in name or name == "row/samples.rs":
                continue
            named = {text for text in texts(file) & known if (name, text) not in OTHER_MEANINGS}
            if named:
                found[name] = named
        self.assertEqual(found, {})


if __name__ == "__main__":
    unittest.main()
