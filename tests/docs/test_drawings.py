"""The drawings and the table of figures are those of the measurements; links lead to pages and headings."""

import re
import subprocess

from harness.server import ROOT

# A link to a page or heading of this repository.
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")


def test_drawings_show_the_figures_in_the_tables() -> None:
    done = subprocess.run([ROOT / "docs/draw", "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}run docs/draw"


def test_links_between_pages_lead_somewhere() -> None:
    missing = []
    # The links of the book's table of contents are those of the book (tests/gate/test_docs.py).
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "SUMMARY.md"]
    for page in [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *pages]:
        for link in LINK.findall(page.read_text()):
            path, _, heading = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                missing.append(f"{page.relative_to(ROOT)}: {link}")
            elif heading and heading not in headings(target.read_text()):
                missing.append(f"{page.relative_to(ROOT)}: {link}: no such heading")
    assert not missing, "\n".join(missing)


def headings(text: str) -> set[str]:
    """The anchors of a page, as the usual viewers of Markdown make them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
