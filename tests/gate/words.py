"""Names lines of comments and prose beyond the last column. Tables, headings and code of Markdown are not
wrapped.
"""

import re
import subprocess
import sys
from pathlib import Path

COLUMNS_MAX = 110


def prose(path: str, text: str):
    """The numbered lines to which the limit applies."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if path.endswith(".rs"):
            if re.match(r" *//", line):
                yield number, line
            continue
        if re.match(r" *```", line):
            is_code = not is_code
        elif not is_code and not re.match(r" *\||    |#", line):
            yield number, line


def main() -> int:
    files = subprocess.run(["git", "ls-files", "*.rs", "*.md"], capture_output=True, text=True, check=True)
    found = [
        f"{path}:{number}: {len(line)} columns"
        for path in files.stdout.splitlines()
        if Path(path).exists()
        for number, line in prose(path, Path(path).read_text(encoding="utf-8"))
        if len(line) > COLUMNS_MAX
    ]
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
