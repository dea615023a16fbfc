//! The argument tree of COMMAND DOCS, from which clients make hints.

use engine::Row;

use super::syntax::{self, Element};

/// The kind of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Integer,
    Double,
    Key,
    Pattern,
    UnixTime,
    /// A token without a value.
    PureToken,
    /// One of the inner arguments.
    OneOf,
    /// All inner arguments.
    Block,
}

impl Kind {
    /// The name in the reply of COMMAND DOCS.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Text => "string",
            Kind::Integer => "integer",
            Kind::Double => "double",
            Kind::Key => "key",
            Kind::Pattern => "pattern",
            Kind::UnixTime => "unix-time",
            Kind::PureToken => "pure-token",
            Kind::OneOf => "oneof",
            Kind::Block => "block",
        }
    }

    /// The kind of a value, inferred from its name.
    fn of_value(name: &str) -> Kind {
        match name {
            "key" | "key1" | "key2" | "newkey" | "source" | "sourcekey" | "src" | "destination"
            | "destkey" | "dst" => Kind::Key,
            "pattern" => Kind::Pattern,
            "unix-time-seconds" | "unix-time-milliseconds" => Kind::UnixTime,
            "seconds" | "milliseconds" | "count" | "index" | "index1" | "index2" | "increment"
            | "decrement" | "offset" | "start" | "end" | "cursor" | "db" | "destination-db" | "protover"
            | "client-id" | "maxage" | "numkeys" | "bit" | "min-match-len" => Kind::Integer,
            _ => Kind::Text,
        }
    }
}

/// One argument, or a group of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The token before the value, or, for a pure token, the token itself.
    pub(super) token: Option<String>,
    pub(super) optional: bool,
    pub(super) multiple: bool,
    /// Whether each repetition repeats the token.
    pub(super) multiple_token: bool,
    pub(super) inner: Vec<Argument>,
}

/// The arguments of a command; `None` if its syntax does not follow the notation.
pub(super) fn arguments(row: &Row) -> Option<Vec<Argument>> {
    let mut arguments = sequence(&syntax::parse(row.syntax)?);
    let has_keys = row.keys.any();
    arguments.iter_mut().for_each(|argument| {
        argument.visit(&mut |argument| match argument.kind {
            Kind::Key if !has_keys => argument.kind = Kind::Text,
            Kind::Integer if row.name.ends_with("float") => argument.kind = Kind::Double,
            _ => {}
        });
    });
    Some(arguments)
}

impl Argument {
    fn new(name: &str, kind: Kind) -> Argument {
        Argument {
            name: name.to_lowercase(),
            kind,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            inner: Vec::new(),
        }
    }

    fn group(name: &str, kind: Kind, inner: Vec<Argument>) -> Argument {
        Argument { inner, ..Argument::new(name, kind) }
    }

    fn with_token(mut self, token: &str) -> Argument {
        if matches!(self.kind, Kind::OneOf | Kind::Block) {
            self.name = token.to_lowercase();
        }
        self.token = Some(token.to_string());
        self
    }

    fn visit(&mut self, change: &mut impl FnMut(&mut Argument)) {
        change(self);
        self.inner.iter_mut().for_each(|inner| inner.visit(change));
    }
}

/// Whether a word of a syntax is a token: only names of values contain lower-case letters.
fn is_token(word: &str) -> bool {
    !word.contains(|c: char| c.is_ascii_lowercase())
}

fn leading_token<'s>(list: &[Element<'s>]) -> Option<&'s str> {
    match list.first() {
        Some(Element::Word(word)) if is_token(word) => Some(word),
        _ => None,
    }
}

/// Consecutive arguments. A token belongs to the value that follows it.
fn sequence(list: &[Element<'_>]) -> Vec<Argument> {
    let mut arguments = Vec::new();
    let mut rest = list;
    while let Some((element, after)) = rest.split_first() {
        rest = after;
        let Some(token) = leading_token(std::slice::from_ref(element)) else {
            arguments.push(argument(element));
            continue;
        };
        match after.split_first() {
            Some((value, after)) if takes_token(value) => {
                rest = after;
                arguments.push(argument(value).with_token(token));
            }
            _ => arguments.push(Argument::new(token, Kind::PureToken).with_token(token)),
        }
    }
    arguments
}

fn takes_token(element: &Element<'_>) -> bool {
    match element {
        Element::Word(word) => !is_token(word),
        Element::Choice(_) => true,
        Element::Repeated(list) => leading_token(list).is_none(),
        Element::Optional(_) => false,
    }
}

fn argument(element: &Element<'_>) -> Argument {
    match element {
        Element::Word(name) => Argument::new(name, Kind::of_value(name)),
        Element::Choice(lists) => choice(lists),
        Element::Optional(lists) => Argument { optional: true, ..choice(lists) },
        Element::Repeated(list) => {
            let mut inner = sequence(list);
            let multiple_token = leading_token(list).is_some() && inner.len() == 1;
            let repeated = match inner.pop() {
                Some(only) if inner.is_empty() => only,
                last => Argument::group("data", Kind::Block, inner.into_iter().chain(last).collect()),
            };
            Argument { multiple: true, multiple_token, ..repeated }
        }
    }
}

fn choice(lists: &[Vec<Element<'_>>]) -> Argument {
    match lists {
        [list] => together(list),
        lists => Argument::group("option", Kind::OneOf, lists.iter().map(|list| together(list)).collect()),
    }
}

/// A list as one argument. A token before several arguments is the token of the group.
fn together(list: &[Element<'_>]) -> Argument {
    if let (Some(token), [_, rest @ ..]) = (leading_token(list), list)
        && rest.len() > 1
    {
        return Argument::group(token, Kind::Block, sequence(rest)).with_token(token);
    }
    let mut inner = sequence(list);
    match inner.pop() {
        Some(only) if inner.is_empty() => only,
        last => Argument::group("arguments", Kind::Block, inner.into_iter().chain(last).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    /// Test notation: `name:kind`, the token before it, inner arguments in parentheses, `?` optional, `*`
    /// multiple, `!` multiple token.
    fn shown(arguments: &[Argument]) -> String {
        let one = |it: &Argument| {
            let token = it.token.as_ref().map_or(String::new(), |token| format!("{token} "));
            let inner = if it.inner.is_empty() { String::new() } else { format!("({})", shown(&it.inner)) };
            let marks = [(it.optional, "?"), (it.multiple, "*"), (it.multiple_token, "!")];
            let marks: String = marks.iter().filter(|(on, _)| *on).map(|(_, mark)| *mark).collect();
            format!("{token}{}:{}{inner}{marks}", it.name, it.kind.name())
        };
        arguments.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    fn of_syntax(syntax: &str) -> String {
        shown(&sequence(&syntax::parse(syntax).expect(syntax)))
    }

    #[test]
    fn arguments_have_the_structure_of_redis() {
        for (syntax, expected) in [
            ("", ""),
            ("key [key ...]", "key:key*"),
            ("key value [key value ...]", "data:block(key:key value:string)*"),
            (
                "key value [NX | XX] [GET] [EX seconds | PXAT unix-time-milliseconds | KEEPTTL]",
                "key:key value:string option:oneof(NX nx:pure-token XX xx:pure-token)? GET get:pure-token? \
                 option:oneof(EX seconds:integer PXAT unix-time-milliseconds:unix-time KEEPTTL keepttl:pure-token)?",
            ),
            (
                "cursor [MATCH pattern] [COUNT count]",
                "cursor:integer MATCH pattern:pattern? COUNT count:integer?",
            ),
            (
                "[protover [AUTH username password] [SETNAME clientname]]",
                "arguments:block(protover:integer AUTH auth:block(username:string password:string)? \
                 SETNAME clientname:string?)?",
            ),
            ("[section [section ...]]", "section:string?*"),
            ("command [arg ...]", "command:string arg:string?*"),
            ("[TYPE <A | B>]", "TYPE type:oneof(A a:pure-token B b:pure-token)?"),
            ("[ID client-id [client-id ...]]", "ID client-id:integer?*"),
            ("[GET pattern [GET pattern ...]]", "GET pattern:pattern?*!"),
            ("[LIMIT offset count]", "LIMIT limit:block(offset:integer count:integer)?"),
            ("SAMPLES [count]", "SAMPLES samples:pure-token count:integer?"),
        ] {
            assert_eq!(of_syntax(syntax), expected, "{syntax}");
        }
    }

    #[test]
    fn every_row_follows_the_notation() {
        for row in rows() {
            let arguments = arguments(row).unwrap_or_else(|| panic!("{}: {}", row.name, row.syntax));
            let takes_arguments = row.arity != 1 + i8::from(row.name.contains('|'));
            let is_container = !row.subcommands.is_empty();
            if !is_container && row.name != "quit" {
                assert_eq!(takes_arguments, !arguments.is_empty(), "{}: {}", row.name, row.syntax);
            }
        }
    }

    #[test]
    fn every_key_in_the_table_is_a_key_in_the_syntax() {
        for row in rows() {
            let mut keys = 0;
            for argument in &mut arguments(row).expect("tested above") {
                argument.visit(&mut |argument| keys += usize::from(argument.kind == Kind::Key));
            }
            let has_keys = row.keys.any();
            assert_eq!(keys > 0, has_keys, "{}: {}", row.name, row.syntax);
        }
    }

    #[test]
    fn floats_are_told_from_integers() {
        let of = |name: &str| shown(&arguments(crate::resolve(name.as_bytes()).expect(name)).expect(name));
        assert_eq!(of("incrby"), "key:key increment:integer");
        assert_eq!(of("incrbyfloat"), "key:key increment:double");
    }
}
