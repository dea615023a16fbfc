//! Sources and their first lines: `#!lua flags=no-writes,allow-oom` of a script, `#!lua name=queue` of a
//! library.

use wire::split_words;

use crate::ScriptError;

/// The flags that a script declares in its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traits {
    /// Whether the script has a first line with `#!`. If so, the flags decide whether the script may run at
    /// all. If not, the script runs, and each of its commands is checked by itself.
    pub declared: bool,
    /// Whether the script declares that it does not write. Its writes are then refused.
    pub no_writes: bool,
    /// Whether the script may add data when memory is scarce.
    pub allow_oom: bool,
    /// Whether the script may run where the data may not be shown, such as on a stale replica.
    pub allow_stale: bool,
}

impl Traits {
    /// Whether the whole script is refused when memory is scarce. If not, the script runs, and its commands
    /// that need memory are refused, unless it declares `allow-oom`.
    pub fn needs_memory(self) -> bool {
        self.declared && !self.no_writes && !self.allow_oom
    }
}

/// A script, with its first line parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source<'s> {
    /// The flags that the first line declares.
    pub traits: Traits,
    /// The source from the end of the first line on, so that line numbers are kept.
    pub body: &'s [u8],
}

impl<'s> Source<'s> {
    /// Parses the first line of a script.
    ///
    /// # Errors
    /// If the first line is malformed, or names an unknown engine, option or flag.
    pub fn of_script(source: &'s [u8]) -> Result<Source<'s>, ScriptError> {
        let Some(rest) = source.strip_prefix(b"#!") else {
            return Ok(Source { traits: Traits::default(), body: source });
        };
        let end = rest.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| ScriptError(b"ERR Invalid script shebang".to_vec()))?;
        let (line, body) = rest.split_at(end);
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        let engine = words.next().unwrap_or_default();
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err(said("Unexpected engine in script shebang: #!", engine));
        }
        let mut traits = Traits { declared: true, ..Traits::default() };
        for word in words {
            let Some(flags) = word.strip_prefix(b"flags=") else {
                return Err(said("Unknown lua shebang option: ", word));
            };
            for flag in flags.split(|byte| *byte == b',').filter(|flag| !flag.is_empty()) {
                if !traits.add(flag) {
                    return Err(said("Unexpected flag in script shebang: ", flag));
                }
            }
        }
        Ok(Source { traits, body })
    }
}

/// The code of a library, with its first line parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibrarySource<'s> {
    /// The name of the library, from its first line.
    pub name: Vec<u8>,
    /// The code from the end of the first line on, so that line numbers are kept.
    pub body: &'s [u8],
}

impl<'s> LibrarySource<'s> {
    /// The error text for an invalid name.
    pub(crate) const NAMES: &'static str = "ERR Library names can only contain letters, numbers, or underscores(_) and \
        must be at least one character long";

    /// Parses the first line of a library.
    ///
    /// # Errors
    /// If the first line is missing or malformed, or has no valid name or engine.
    pub fn of(code: &'s [u8]) -> Result<LibrarySource<'s>, ScriptError> {
        let no_metadata = || ScriptError(b"ERR Invalid library metadata".to_vec());
        if !code.starts_with(b"#!") {
            return Err(ScriptError(b"ERR Missing library metadata".to_vec()));
        }
        let end = code.iter().position(|byte| *byte == b'\n').ok_or_else(no_metadata)?;
        let (line, body) = code.split_at(end);
        let words = split_words(line).map_err(|_| no_metadata())?;
        let words = words.as_args();
        let engine = words.get(0).and_then(|word| word.strip_prefix(b"#!")).ok_or_else(no_metadata)?;
        let mut name = None;
        for word in words.skip(1) {
            match word.split_at_checked(5) {
                Some((key, value)) if key.eq_ignore_ascii_case(b"name=") => {
                    if name.replace(value.to_vec()).is_some() {
                        let text = b"ERR Invalid metadata value, name argument was given multiple times";
                        return Err(ScriptError(text.to_vec()));
                    }
                }
                _ => return Err(said("Invalid metadata value given: ", word)),
            }
        }
        let name = name.ok_or_else(|| ScriptError(b"ERR Library name was not given".to_vec()))?;
        if !Self::is_name(&name) {
            return Err(ScriptError(Self::NAMES.as_bytes().to_vec()));
        }
        if !engine.eq_ignore_ascii_case(b"lua") {
            return Err(ScriptError([b"ERR Engine '", engine, b"' not found"].concat()));
        }
        Ok(LibrarySource { name, body })
    }

    /// Whether this is a valid name of a library or a function.
    pub(crate) fn is_name(name: &[u8]) -> bool {
        !name.is_empty() && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
    }
}

impl Traits {
    /// Adds a flag. Returns whether the flag is known.
    pub fn add(&mut self, flag: &[u8]) -> bool {
        match flag {
            b"no-writes" => self.no_writes = true,
            b"allow-oom" => self.allow_oom = true,
            b"allow-stale" => self.allow_stale = true,
            b"no-cluster" | b"allow-cross-slot-keys" => {}
            _ => return false,
        }
        true
    }
}

fn said(text: &str, word: &[u8]) -> ScriptError {
    ScriptError([b"ERR ", text.as_bytes(), word].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_a_library() {
        for line in ["#!lua name=lib", "#!LUA NAME='lib'", "#!lua \t name=\"lib\"\r"] {
            let code = format!("{line}\nreturn");
            let source = LibrarySource::of(code.as_bytes()).expect("a library");
            assert_eq!((&*source.name, source.body), (&b"lib"[..], &b"\nreturn"[..]), "{line}");
        }
        for (code, expected) in [
            ("", "ERR Missing library metadata"),
            ("return 1", "ERR Missing library metadata"),
            ("#!lua name=lib", "ERR Invalid library metadata"),
            ("#!lua name=\"lib\n", "ERR Invalid library metadata"),
            ("#!lua\n", "ERR Library name was not given"),
            ("#!lua nam=lib\n", "ERR Invalid metadata value given: nam=lib"),
            ("#! lua name=lib\n", "ERR Invalid metadata value given: lua"),
            ("#!lua name=a name=b\n", "ERR Invalid metadata value, name argument was given multiple times"),
            ("#!lua name=\n", LibrarySource::NAMES),
            ("#!js name=a-b\n", LibrarySource::NAMES),
            ("#!js name=lib\n", "ERR Engine 'js' not found"),
            ("#! name=lib\n", "ERR Engine '' not found"),
        ] {
            let problem = LibrarySource::of(code.as_bytes()).expect_err("no library");
            assert_eq!(String::from_utf8_lossy(&problem.0), expected, "{code}");
        }
    }

    #[test]
    fn the_first_line_declares_the_flags_of_a_script() {
        let source = Source::of_script(b"#!lua flags=no-writes,allow-stale\nreturn 1").expect("a script");
        assert_eq!(source.body, b"\nreturn 1");
        let traits = source.traits;
        assert!(traits.declared && traits.no_writes && traits.allow_stale && !traits.allow_oom);
        let plain = Source::of_script(b"return 1").expect("a script");
        assert_eq!((plain.traits, plain.body), (Traits::default(), b"return 1".as_slice()));
        for (source, expected) in [
            ("#!lua", "ERR Invalid script shebang"),
            ("#!js\n", "ERR Unexpected engine in script shebang: #!js"),
            ("#!lua a=b\n", "ERR Unknown lua shebang option: a=b"),
            ("#!lua flags=nope\n", "ERR Unexpected flag in script shebang: nope"),
        ] {
            let problem = Source::of_script(source.as_bytes()).expect_err("no script");
            assert_eq!(String::from_utf8_lossy(&problem.0), expected);
        }
    }
}
