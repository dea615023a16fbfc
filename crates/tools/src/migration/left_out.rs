//! Omissions of a copy: by command, their number, the first key, and the reason.

use std::{collections::BTreeMap, fmt};

/// Maximum number of distinct names. Further names are only counted.
const NAMES_MAX: usize = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    by_name: BTreeMap<String, Commands>,
    others: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Commands {
    count: u64,
    first_key: String,
    why: String,
}

impl LeftOut {
    /// Counts `count` omissions of a name. Returns whether this is the first omission of the name, and the
    /// name is one of the first [`NAMES_MAX`].
    pub(super) fn add(&mut self, name: &str, count: u64, key: &str, why: &str) -> bool {
        if let Some(commands) = self.by_name.get_mut(name) {
            commands.count += count;
            return false;
        }
        if self.by_name.len() >= NAMES_MAX {
            self.others += count;
            return false;
        }
        let commands = Commands { count, first_key: key.into(), why: why.into() };
        self.by_name.insert(name.into(), commands);
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, Commands { count, first_key, why }) in &self.by_name {
            let key =
                if first_key.is_empty() { String::new() } else { format!(", the first of \"{first_key}\"") };
            writeln!(to, "NOT COPIED   {count} {name}{key}: {why}")?;
        }
        if self.others > 0 {
            writeln!(to, "NOT COPIED   {} other commands", self.others)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_once_and_counted() {
        let mut left_out = LeftOut::default();
        assert!(left_out.is_empty());
        assert!(left_out.add("XADD", 1, "s", "unknown command"));
        assert!(!left_out.add("XADD", 1, "t", "unknown command"));
        assert!(left_out.add("function libraries", 3, "", "no names"));
        assert_eq!(
            left_out.to_string(),
            "NOT COPIED   2 XADD, the first of \"s\": unknown command\n\
             NOT COPIED   3 function libraries: no names\n"
        );
    }

    #[test]
    fn names_have_a_limit() {
        let mut left_out = LeftOut::default();
        (0..NAMES_MAX + 5).for_each(|number| _ = left_out.add(&number.to_string(), 1, "", "no"));
        assert_eq!(left_out.to_string().lines().count(), NAMES_MAX + 1);
        assert!(left_out.to_string().ends_with("NOT COPIED   5 other commands\n"));
    }
}
