//! The two text formats of metrics. OpenMetrics 1.0.0 is rendered; the Prometheus text format 0.0.4 is
//! derived from it, and is sent to clients that do not ask for OpenMetrics.
//!
//! In format 0.0.4, `# TYPE` and `# HELP` name a counter with `_total`, `# UNIT` and `# EOF` are missing, and
//! an unknown type is `untyped`. The format has no exemplars; no metric here has any.

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// `text/plain; version=0.0.4`
    Text,
    /// `application/openmetrics-text; version=1.0.0`
    OpenMetrics,
}

impl Exposition {
    /// The format for this `Accept` header: OpenMetrics if it is preferred at least as much as plain text.
    pub(crate) fn of(accept: Option<&str>) -> Exposition {
        let accept = accept.unwrap_or_default();
        let openmetrics = quality(accept, &["application/openmetrics-text"]);
        let text = quality(accept, &["text/plain", "text/*", "*/*"]);
        if openmetrics > 0.0 && openmetrics >= text { Exposition::OpenMetrics } else { Exposition::Text }
    }

    /// The value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Exposition::Text => "text/plain; version=0.0.4; charset=utf-8",
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// Converts a text in OpenMetrics to this format.
    pub(crate) fn text(self, openmetrics: String) -> String {
        match self {
            Exposition::Text => text_of(&openmetrics),
            Exposition::OpenMetrics => openmetrics,
        }
    }
}

/// The highest `q` of the media ranges in `accept` whose type is one of `names`; 0 if there is none.
fn quality(accept: &str, names: &[&str]) -> f32 {
    let ranges = accept.split(',').filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next()?;
        let known = names.iter().any(|known| known.eq_ignore_ascii_case(name));
        let q = parts.find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |q| q.parse().ok());
        known.then_some(q?)
    });
    ranges.fold(0.0, f32::max)
}

fn text_of(openmetrics: &str) -> String {
    let mut out = String::with_capacity(openmetrics.len() + openmetrics.len() / 16);
    // HELP precedes TYPE, and only TYPE identifies a counter.
    let mut help = None;
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(text)) => help = Some((name, text)),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                    push(&mut out, &["# HELP ", name, suffix, " ", text]);
                }
                let kind = if kind == "unknown" { "untyped" } else { kind };
                push(&mut out, &["# TYPE ", name, suffix, " ", kind]);
            }
            (Some("#"), _, _, _) => {}
            _ => push(&mut out, &[line]),
        }
    }
    out
}

fn push(out: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| out.push_str(part));
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_sent_on_request_and_plain_text_otherwise() {
        let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                          application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,\
                          text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for (accept, expected) in [
            (None, Exposition::Text),
            (Some("*/*"), Exposition::Text),
            (Some("text/plain;version=0.0.4"), Exposition::Text),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), Exposition::Text),
            (Some("application/openmetrics-text"), Exposition::OpenMetrics),
            (Some(prometheus), Exposition::OpenMetrics),
            (Some("application/openmetrics-text;q=0.1, text/plain;q=0.5"), Exposition::Text),
            (Some("application/openmetrics-text;q=0"), Exposition::Text),
        ] {
            assert_eq!(Exposition::of(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn counters_have_their_whole_name_in_plain_text() {
        let openmetrics = "# HELP a keys.\n# TYPE a counter\na_total 1\n# HELP b bytes.\n# TYPE b gauge\n# UNIT b bytes\n\
                           b{c=\"d\"} 2\n# EOF\n";
        let text = "# HELP a_total keys.\n# TYPE a_total counter\na_total 1\n# HELP b bytes.\n# TYPE b gauge\nb{c=\"d\"} 2\n";
        assert_eq!(Exposition::Text.text(openmetrics.into()), text);
        assert_eq!(Exposition::OpenMetrics.text(openmetrics.into()), openmetrics);
    }
}
