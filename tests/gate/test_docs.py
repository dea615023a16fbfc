"""Tests that the index of docs/ and the table of contents of the book are complete."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


class Index(unittest.TestCase):
    def test_every_page_is_in_the_index(self):
        index = (DOCS / "README.md").read_text(encoding="utf-8")
        pages = [page.relative_to(DOCS) for folder in (DOCS, DOCS / "guides") for page in folder.glob("*.md")]
        names = {str(page) for page in pages} - {"README.md", "SUMMARY.md"}
        self.assertEqual([page for page in sorted(names) if f"({page})" not in index], [])


class Book(unittest.TestCase):
    def test_every_page_is_in_the_summary_and_every_link_leads_somewhere(self):
        with tempfile.TemporaryDirectory() as scratch:
            book = Path(scratch) / "book"
            subprocess.run([DOCS / "book", "--prepare", book], check=True)
            pages = {str(page.relative_to(book / "src")) for page in book.rglob("*.md")}
            chapters = LINK.findall((book / "src/SUMMARY.md").read_text())
            self.assertEqual(sorted(chapters), sorted(pages - {"SUMMARY.md"}))
            for page in book.rglob("*.md"):
                for link in LINK.findall(page.read_text()):
                    if "://" not in link:
                        self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")


if __name__ == "__main__":
    unittest.main()
