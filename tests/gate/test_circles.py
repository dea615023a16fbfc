"""Tests of tests/circles."""

import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

loader = SourceFileLoader("circles", str(Path(__file__).parents[1] / "circles"))
script = module_from_spec(spec_from_loader("circles", loader))
loader.exec_module(script)


def circles(**files: str) -> list[list[str]]:
    """The circles of a crate with these files; `_` in a name is a folder."""
    source = {f"{name.replace('_', '/')}.rs": text for name, text in files.items()}
    return script.circles(script.Crate(source).imports())


class Circles(unittest.TestCase):
    def test_uses_and_paths_in_code_are_imports(self):
        a = "use crate::{c, d::{D, e as f}}; struct A;"
        found = circles(lib="mod a; mod b; mod c; mod d;", a="use crate::b::B;", b="fn f() { super::a::f() }", c=a, d="")
        self.assertEqual(found, [["a.rs", "b.rs"]])

    def test_a_re_export_of_the_root_leads_to_its_file(self):
        found = circles(lib="mod a; mod b; pub use a::A; pub use self::b::B;", a="use crate::B;", b="use crate::A;")
        self.assertEqual(found, [["a.rs", "b.rs"]])

    def test_a_parent_does_not_import_its_children(self):
        child = "use super::A;"
        for use in ("", "use b::B;", "use self::b::B;", "use crate::a::b::B;"):
            self.assertEqual(circles(lib="mod a;", a=f"mod b; {use} struct A;", a_b=child), [])
        other = {"a_c": "use super::b::B;"}
        self.assertEqual(circles(lib="mod a;", a="mod b; mod c;", a_b="use super::c::C;", **other), [["a/b.rs", "a/c.rs"]])

    def test_tests_comments_and_strings_are_left_out(self):
        texts = ["#[cfg(test)] mod tests { use crate::a::A; }", "// use crate::a::A;\n", 'const S: &str = "crate::a::A";']
        for text in texts:
            self.assertEqual(circles(lib="mod a; mod b;", a="use crate::b::B;", b=text), [], text)

    def test_a_test_in_the_middle_hides_nothing_behind_it(self):
        b = "#[cfg(test)]\nfn f() { g(); }\nuse crate::a::A;"
        self.assertEqual(circles(lib="mod a; mod b;", a="use crate::b::B;", b=b), [["a.rs", "b.rs"]])


if __name__ == "__main__":
    unittest.main()
