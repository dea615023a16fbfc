//! The parameters of a query string, typed. Wrong values are told in CouchDB's words.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;

/// Parameters beyond this many are not looked at.
const PARAMETERS_MAX: usize = 100;

/// See the module documentation.
#[derive(Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: Option<&str>) -> Query {
        let pairs = form_urlencoded::parse(text.unwrap_or("").as_bytes()).take(PARAMETERS_MAX);
        Query(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// Puts a parameter before all others, as one that a body gives does.
    pub(super) fn put_first(&mut self, name: &str, value: String) {
        self.0.insert(0, (name.into(), value));
    }

    /// The text of the first of these names that is given.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// `true` or `false`; false if it is not given.
    pub(super) fn flag(&self, name: &str) -> Result<bool, Failure> {
        self.flag_or(name, false)
    }

    pub(super) fn flag_or(&self, name: &str, default: bool) -> Result<bool, Failure> {
        match self.text(name) {
            None | Some("") => Ok(default),
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(Failure::query(format!("Invalid boolean parameter: {}", quoted(other)))),
        }
    }

    /// A number that is not negative.
    pub(super) fn count(&self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.trim().parse::<i64>() {
            Ok(number) => match u64::try_from(number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => {
                    Err(Failure::query(format!("Invalid value for positive integer: {}", quoted(text))))
                }
            },
            Err(_) => Err(Failure::query(format!("Invalid value for integer: {}", quoted(text)))),
        }
    }

    /// A value of JSON.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.text(name).map(parse_json).transpose()
    }

    /// A value of JSON under any of these names.
    pub(super) fn any_json(&self, names: &[&str]) -> Result<Option<Value>, Failure> {
        names.iter().find_map(|name| self.text(name)).map(parse_json).transpose()
    }
}

/// A text, as Erlang shows it in the reasons of CouchDB.
pub(super) fn quoted(text: &str) -> Cow<'static, str> {
    format!("\"{}\"", text.escape_debug()).into()
}

fn parse_json<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|_| Failure::INVALID_JSON)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
        let (status, error, reason) = result.unwrap_err().parts();
        format!("{status} {error} {reason}")
    }

    #[test]
    fn parameters_have_types_and_wrong_ones_have_reasons() {
        let query = Query::parse(Some("a=true&b=no&limit=-1&skip=x&count=7&key=%22a+b%22&keys=%5B1&a=false"));
        assert_eq!(query.flag("a"), Ok(true), "the first counts");
        assert_eq!(query.flag("none"), Ok(false));
        assert_eq!(reason(query.flag("b")), "400 query_parse_error Invalid boolean parameter: \"no\"");
        assert_eq!(
            reason(query.count("limit")),
            "400 query_parse_error Invalid value for positive integer: \"-1\""
        );
        assert_eq!(reason(query.count("skip")), "400 query_parse_error Invalid value for integer: \"x\"");
        assert_eq!(query.count("count"), Ok(Some(7)));
        assert_eq!(query.any_json(&["start_key", "key"]), Ok(Some("a b".into())));
        assert_eq!(reason(query.json::<Value>("keys")), "400 bad_request invalid UTF-8 JSON");
    }
}
