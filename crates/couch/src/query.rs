//! Typed access to the parameters of a query string. Errors have the texts of CouchDB.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failure::Failure;

/// The maximum number of parameters; further ones are ignored.
const PARAMETERS_MAX: usize = 100;

/// The names and values of a query string or a form.
///
/// # Errors
/// `reason`, if a name or a value is not UTF-8: the parser would put another character in the place of such
/// bytes.
pub(super) fn pairs<'a>(text: &'a [u8], reason: &'static str) -> Result<form_urlencoded::Parse<'a>, Failure> {
    percent_decode(text).decode_utf8().map_err(|_| Failure::bad_request(reason))?;
    Ok(form_urlencoded::parse(text))
}

/// The parameters of a request, in order.
#[derive(Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// # Errors
    /// If a name or a value is not UTF-8.
    pub(super) fn parse(text: Option<&str>) -> Result<Query, Failure> {
        let pairs = pairs(text.unwrap_or("").as_bytes(), "invalid UTF-8 in query")?.take(PARAMETERS_MAX);
        Ok(Query(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()))
    }

    /// Adds a parameter with precedence over all others, such as one from the body.
    pub(super) fn put_first(&mut self, name: &str, value: String) {
        self.0.insert(0, (name.into(), value));
    }

    /// The value of the first parameter of this name.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a boolean parameter; false if it is absent or empty.
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

    /// The value of a non-negative integer parameter.
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

    /// The value of a JSON parameter.
    pub(super) fn json<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        self.text(name).map(parse_json).transpose()
    }

    /// The value of a JSON parameter with several names; the first name present counts.
    pub(super) fn any_json(&self, names: &[&str]) -> Result<Option<Value>, Failure> {
        names.iter().find_map(|name| self.text(name)).map(parse_json).transpose()
    }
}

/// A quoted text as in CouchDB's reasons, which Erlang formats.
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
        let query = Query::parse(Some("a=true&b=no&limit=-1&skip=x&count=7&key=%22a+b%22&keys=%5B1&a=false"))
            .unwrap();
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

    #[test]
    fn bytes_that_are_no_text_are_refused_and_not_replaced() {
        assert_eq!(Query::parse(Some("key=%22%C3%A9%22")).unwrap().json("key"), Ok(Some("é".to_owned())));
        for text in ["key=%22%E9%22", "%ff=1", "a=1&b=%C3&c=%A9"] {
            let refused = Query::parse(Some(text)).map(|query| query.0);
            assert_eq!(reason(refused), "400 bad_request invalid UTF-8 in query", "{text}");
        }
    }
}
