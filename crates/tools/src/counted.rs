//! Numbers of things in the output of commands.

/// A number with its noun: "1 key", "2 keys".
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_thing_has_the_singular() {
        assert_eq!(
            [0, 1, 2].map(|count| counted(count, "library", "libraries")),
            ["0 libraries", "1 library", "2 libraries"]
        );
    }
}
