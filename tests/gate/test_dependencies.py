"""Tests that each crate uses the crates that it depends on: in code that ships, or else in its tests."""

import re
import tomllib
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Where the name in code is not that of the package.
NAMES_IN_CODE = {"md-5": "md5"}


def is_used(name: str, code: str) -> bool:
    name = NAMES_IN_CODE.get(name, name).replace("-", "_")
    return re.search(rf"(?<![\w:]){name}::|\buse {name}\b", code) is not None


def code_of(files: list[Path], with_tests: bool) -> str:
    texts = [re.sub(r"//.*", "", file.read_text("utf-8")) for file in files]
    return "\n".join(text if with_tests else text.split("#[cfg(test)]\nmod tests {")[0] for text in texts)


def unused(crate: Path) -> list[str]:
    manifest = tomllib.loads((crate / "Cargo.toml").read_text("utf-8"))
    files = list(crate.rglob("*.rs"))
    shipped = [file for file in files if "src" in file.parts and not {"tests", "tests.rs"} & set(file.parts)]
    found = []
    for section, code in (
        ("dependencies", code_of(shipped, with_tests=False)),
        ("dev-dependencies", code_of(files, with_tests=True)),
    ):
        found += [f"{section}: {name}" for name in manifest.get(section, {}) if not is_used(name, code)]
    return found


class Dependencies(unittest.TestCase):
    def test_every_dependency_is_used(self):
        crates = sorted(path.parent for path in (ROOT / "crates").glob("*/Cargo.toml"))
        self.assertGreater(len(crates), 20)
        self.assertEqual({crate.name: unused(crate) for crate in crates if unused(crate)}, {})


if __name__ == "__main__":
    unittest.main()
