//! The notation of command arguments in rows and in the Redis manual.
//!
//! ```text
//! word            NAME is a token, name stands for a value
//! [a | b]         one of them, or none
//! <a | b>         one of them
//! x y [x y ...]   once or more often
//! [x y ...]       never, once or more often
//! ```

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Element<'s> {
    /// A token or the name of a value.
    Word(&'s str),
    /// `[a | b]`
    Optional(Vec<Vec<Element<'s>>>),
    /// `<a | b>`
    Choice(Vec<Vec<Element<'s>>>),
    /// `x [x ...]`
    Repeated(Vec<Element<'s>>),
}

/// Parses a syntax; `None` if its brackets do not match or it does not follow the notation.
pub(super) fn parse(syntax: &str) -> Option<Vec<Element<'_>>> {
    let mut symbols = Symbols { rest: syntax };
    let (mut lists, repeats) = parse_lists(&mut symbols, None)?;
    match (lists.pop(), lists.is_empty(), repeats) {
        (Some(list), true, false) => Some(list),
        _ => None,
    }
}

/// Parses lists of elements, separated by `|`, up to the closing bracket or the end. The flag is whether the
/// last list ended in `...`.
fn parse_lists<'s>(symbols: &mut Symbols<'s>, close: Option<&str>) -> Option<(Vec<Vec<Element<'s>>>, bool)> {
    let mut lists = vec![Vec::new()];
    let mut repeats = false;
    loop {
        let symbol = symbols.next();
        if symbol == close {
            return Some((lists, repeats));
        }
        if repeats {
            return None;
        }
        let list = lists.last_mut()?;
        match symbol? {
            "|" => lists.push(Vec::new()),
            "..." => repeats = true,
            "[" => match parse_lists(symbols, Some("]"))? {
                (inner, false) => list.push(Element::Optional(inner)),
                (mut inner, true) if inner.len() == 1 => push_repetition(list, inner.pop()?),
                _ => return None,
            },
            "<" => match parse_lists(symbols, Some(">"))? {
                (inner, false) => list.push(Element::Choice(inner)),
                _ => return None,
            },
            "]" | ">" => return None,
            word => list.push(Element::Word(word)),
        }
    }
}

/// Pushes `[x ...]`: merges it with the `x` before it, if there is one.
fn push_repetition<'s>(list: &mut Vec<Element<'s>>, repeated: Vec<Element<'s>>) {
    if list.ends_with(&repeated) {
        list.truncate(list.len() - repeated.len());
        list.push(Element::Repeated(repeated));
    } else {
        list.push(Element::Optional(vec![vec![Element::Repeated(repeated)]]));
    }
}

/// Splits a syntax into words and special characters.
struct Symbols<'s> {
    rest: &'s str,
}

impl<'s> Iterator for Symbols<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        const SPECIAL: [char; 5] = ['[', ']', '<', '>', '|'];
        let text = self.rest.trim_start();
        let first = text.chars().next()?;
        let len = if SPECIAL.contains(&first) {
            1
        } else {
            text.find(|c: char| c.is_whitespace() || SPECIAL.contains(&c)).unwrap_or(text.len())
        };
        let (symbol, rest) = text.split_at(len);
        self.rest = rest;
        Some(symbol)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(elements: &[Element<'_>]) -> String {
        let lists =
            |lists: &[Vec<Element<'_>>]| lists.iter().map(|list| shown(list)).collect::<Vec<_>>().join("|");
        let one = |element: &Element<'_>| match element {
            Element::Word(word) => word.to_string(),
            Element::Optional(inner) => format!("[{}]", lists(inner)),
            Element::Choice(inner) => format!("<{}>", lists(inner)),
            Element::Repeated(inner) => format!("({})+", shown(inner)),
        };
        elements.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_notation_is_read() {
        for (syntax, expected) in [
            ("", ""),
            ("key", "key"),
            ("key value [NX | XX] [GET]", "key value [NX|XX] [GET]"),
            ("<ON|OFF>", "<ON|OFF>"),
            ("key [key ...]", "(key)+"),
            ("key value [key value ...]", "(key value)+"),
            ("[section [section ...]]", "[(section)+]"),
            ("command [arg ...]", "command [(arg)+]"),
            ("[ID id [id ...]]", "[ID (id)+]"),
            ("[GET pattern [GET pattern ...]]", "[(GET pattern)+]"),
            ("[protover [AUTH username password]]", "[protover [AUTH username password]]"),
            ("[TYPE <A | B>]", "[TYPE <A|B>]"),
        ] {
            assert_eq!(shown(&parse(syntax).expect(syntax)), expected);
        }
    }

    #[test]
    fn other_notations_are_refused() {
        for syntax in
            ["[key", "key]", "<a", "a>", "[a>", "a | b", "a ...", "[a ... b]", "[a | b ...]", "<a ...>"]
        {
            assert_eq!(parse(syntax), None, "{syntax}");
        }
    }
}
