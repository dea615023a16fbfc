"""The command line as people, packages and shells use it: help, completions, manual pages."""

import shutil
import subprocess

import pytest

from harness.server import run_sheaf

pytestmark = pytest.mark.sheaf_only

TOOLS = ("check", "log", "import", "export", "backup", "restore", "tail", "group", "completions", "man")


def printed(*arguments: str) -> str:
    ran = run_sheaf(*arguments)
    assert (ran.returncode, ran.stderr) == (0, ""), ran
    return ran.stdout


def settings() -> list[str]:
    """The names of all settings, from the long help."""
    words = (line.split() for line in printed("--help").splitlines())
    return [line[0] for line in words if line and line[0].startswith("--")]


def test_help_is_short_or_complete():
    short, long = printed("-h"), printed("--help")
    assert len(short.splitlines()) <= 75, short
    assert all(f"  {tool}  " in short for tool in TOOLS)
    for group in ("Start", "Durability", "Memory", "Network", "Replication", "Documents", "Limits"):
        assert f"\n{group}:\n" in short and f"\n{group}:\n" in long
    assert len(settings()) > 80
    assert "--snapshot-cpu-percent <PERCENT>" in long and "--snapshot-cpu-percent" not in short


def test_the_script_of_bash_completes_commands_and_values():
    script = printed("completions", "bash")
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    ask = """
COMP_WORDS=(sheaf che) COMP_CWORD=1; _sheaf sheaf che sheaf; echo ${COMPREPLY[@]}
COMP_WORDS=(sheaf --durability "") COMP_CWORD=2; _sheaf sheaf "" --durability; echo ${COMPREPLY[@]}
"""
    answers = subprocess.run(["bash"], input=script + ask, text=True, capture_output=True, check=True)
    assert answers.stdout.splitlines() == ["check", "strict commit interval none"], answers
    for shell in ("bash", "zsh", "fish"):
        script = printed("completions", shell)
        assert all(tool in script for tool in TOOLS), shell


def test_manual_pages_have_all_commands_and_settings(tmp_path):
    directory = tmp_path / "new" / "man1"
    assert printed("man", str(directory)) == ""
    pages = {page.name for page in directory.iterdir()}
    assert pages == {"sheaf.1", "sheaf-serve.1"} | {f"sheaf-{tool}.1" for tool in TOOLS}
    main = (directory / "sheaf.1").read_text().replace("\\-", "-")
    assert [name for name in settings() if name not in main] == []
    if shutil.which("man"):
        rendered = subprocess.run(
            ["man", "--warnings", "-l", str(directory / "sheaf.1")], capture_output=True, text=True, check=True
        )
        assert "DURABILITY" in rendered.stdout and rendered.stderr == "", rendered.stderr
