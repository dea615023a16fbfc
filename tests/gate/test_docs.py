"""Tests that the index of docs/ is complete."""

import unittest
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


class Index(unittest.TestCase):
    def test_every_page_is_in_the_index(self):
        index = (DOCS / "README.md").read_text(encoding="utf-8")
        pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}
        self.assertEqual([page for page in sorted(pages) if f"({page})" not in index], [])


if __name__ == "__main__":
    unittest.main()
