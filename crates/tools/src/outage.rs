//! A server that is away for a while: a client tries again every second, and reports that once.

use std::{fmt::Display, time::Duration};

/// The time between two attempts.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

/// Whether the server is away and that was reported.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    is_reported: bool,
}

impl Outage {
    /// Reports a failed attempt, unless the attempt before it has failed as well, and waits until the next
    /// attempt is due.
    pub(crate) async fn wait(&mut self, error: &impl Display, report: impl FnOnce(&str)) {
        self.note(error).inspect(|text| report(text));
        tokio::time::sleep(RETRY_PERIOD).await;
    }

    /// The report of a failure; `None` if it was reported already.
    fn note(&mut self, error: &impl Display) -> Option<String> {
        let is_news = !std::mem::replace(&mut self.is_reported, true);
        is_news.then(|| format!("{error}; trying again every second"))
    }

    /// Notes that an attempt has succeeded. Returns whether an earlier attempt had failed.
    pub(crate) fn end(&mut self) -> bool {
        std::mem::take(&mut self.is_reported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_failure_is_reported() {
        let mut outage = Outage::default();
        assert!(!outage.end());
        for _ in 0..2 {
            assert_eq!(outage.note(&"gone").as_deref(), Some("gone; trying again every second"));
            assert_eq!(outage.note(&"still gone"), None);
            assert!(outage.end() && !outage.end());
        }
    }
}
