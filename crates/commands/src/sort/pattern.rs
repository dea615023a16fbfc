//! Patterns of SORT: which value belongs to an element.
//!
//! - `weight_*`: the string at the key that has the element in place of the asterisk.
//! - `object_*->field`: a field of the hash at such a key.
//! - `#`: the element itself.
//!
//! A pattern is no glob: only its first asterisk has a meaning.

use engine::Unit;
use keyspace::{DbId, Element, View};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    /// The element itself.
    Element,
    /// A pattern without an asterisk, other than `#`. No value is shown, because it would be the same for all
    /// elements.
    Nothing,
    /// The value at a key.
    Key {
        /// The part of the key before the element.
        prefix: &'a [u8],
        /// The part of the key after the element.
        suffix: &'a [u8],
        /// A field of the hash at the key, instead of the string there.
        field: Option<&'a [u8]>,
    },
}

impl<'a> Pattern<'a> {
    pub(super) fn parse(text: &'a [u8]) -> Pattern<'a> {
        let Some(asterisk) = text.iter().position(|byte| *byte == b'*') else {
            return if text == b"#" { Pattern::Element } else { Pattern::Nothing };
        };
        let (prefix, rest) = (&text[..asterisk], &text[asterisk + 1..]);
        let arrow = rest.windows(2).position(|pair| pair == b"->");
        // An arrow at the end belongs to the key.
        match arrow.map(|arrow| (&rest[..arrow], &rest[arrow + 2..])) {
            Some((suffix, field)) if !field.is_empty() => Pattern::Key { prefix, suffix, field: Some(field) },
            _ => Pattern::Key { prefix, suffix: rest, field: None },
        }
    }

    /// Whether values are looked up at other keys, whose names depend on the elements.
    pub(super) fn reads_keys(&self) -> bool {
        matches!(self, Pattern::Key { .. })
    }

    /// The value that belongs to the element; none if the key or field is not there or holds another type.
    /// If the pattern reads keys, the caller has locked every slot. `key` is a buffer.
    pub(super) fn value<'u>(
        &self,
        unit: &'u Unit<'_>,
        db: DbId,
        element: &Element<'u>,
        key: &mut Vec<u8>,
    ) -> Option<Element<'u>> {
        let (prefix, suffix, field) = match *self {
            Pattern::Element => return Some(*element),
            Pattern::Nothing => return None,
            Pattern::Key { prefix, suffix, field } => (prefix, suffix, field),
        };
        key.clear();
        for part in [prefix, &**element, suffix] {
            key.extend_from_slice(part);
        }
        match (unit.inspect(db, key)?.view(), field) {
            (View::String(bytes), None) => Some(Element::from_bytes(bytes)),
            (View::Hash(hash), Some(name)) => {
                let field = hash.field(name).filter(|field| !field.is_expired(unit.as_of_ms()));
                field.map(|field| field.value)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_asterisk_and_the_first_arrow_after_it_count() {
        let key = |prefix: &'static str, suffix: &'static str, field: Option<&'static str>| Pattern::Key {
            prefix: prefix.as_bytes(),
            suffix: suffix.as_bytes(),
            field: field.map(str::as_bytes),
        };
        for (text, expected) in [
            ("#", Pattern::Element),
            ("##", Pattern::Nothing),
            ("", Pattern::Nothing),
            ("nosort", Pattern::Nothing),
            ("h->f", Pattern::Nothing),
            ("*", key("", "", None)),
            ("w_*", key("w_", "", None)),
            ("w_*_*", key("w_", "_*", None)),
            ("w_*->f", key("w_", "", Some("f"))),
            ("w_*x->f->g", key("w_", "x", Some("f->g"))),
            ("a->b*c->d", key("a->b", "c", Some("d"))),
            ("w_*->", key("w_", "->", None)),
            ("w_*->->", key("w_", "", Some("->"))),
            ("w_*->*", key("w_", "", Some("*"))),
            ("w_*-", key("w_", "-", None)),
        ] {
            assert_eq!(Pattern::parse(text.as_bytes()), expected, "{text}");
        }
    }
}
