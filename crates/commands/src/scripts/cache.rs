//! The scripts that clients may call by name. Workers share them.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use parking_lot::RwLock;
use scripting::{Meter, ScriptError, Sha, Source, Traits};

use super::{ScriptSettings, running::RunningScripts};

/// Scripts that came with EVAL and are kept: with more, the oldest are forgotten, as in Redis. Those of SCRIPT LOAD are kept
/// until SCRIPT FLUSH.
const EVALUATED_MAX: usize = 500;

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) sha: Sha,
    pub(crate) source: Box<[u8]>,
    pub(crate) traits: Traits,
    /// Where the code begins.
    body_start: usize,
}

impl Script {
    /// Understands the first line of a source.
    pub(crate) fn new(source: &[u8]) -> Result<Script, ScriptError> {
        let Source { traits, body } = Source::of_script(source)?;
        let body_start = source.len() - body.len();
        Ok(Script { sha: Sha::of(source), source: source.into(), traits, body_start })
    }

    /// What is compiled.
    pub(crate) fn body(&self) -> &[u8] {
        &self.source[self.body_start..]
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Scripts {
    /// What holds for them.
    pub settings: ScriptSettings,
    cache: RwLock<Cache>,
    running: RunningScripts,
}

/// A script that runs.
pub(crate) struct Run<'s> {
    scripts: &'s Scripts,
    meter: Meter,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.scripts.running.end(&self.meter);
    }
}

#[derive(Debug, Default)]
struct Cache {
    scripts: HashMap<Sha, Kept>,
    /// Those that came with EVAL, the oldest first.
    evaluated: VecDeque<Sha>,
    source_bytes: u64,
}

#[derive(Debug)]
struct Kept {
    script: Arc<Script>,
    /// By SCRIPT LOAD.
    is_loaded: bool,
}

impl Scripts {
    /// The script of this name.
    pub(crate) fn find(&self, sha: Sha) -> Option<Arc<Script>> {
        self.cache.read().scripts.get(&sha).map(|kept| kept.script.clone())
    }

    /// Keeps a script that compiles.
    pub(crate) fn keep(&self, script: Arc<Script>, is_loaded: bool) {
        let cache = &mut *self.cache.write();
        let sha = script.sha;
        if let Some(kept) = cache.scripts.get_mut(&sha) {
            if is_loaded && !kept.is_loaded {
                kept.is_loaded = true;
                cache.evaluated.retain(|other| *other != sha);
            }
            return;
        }
        cache.source_bytes += script.source.len() as u64;
        cache.scripts.insert(sha, Kept { script, is_loaded });
        if is_loaded {
            return;
        }
        cache.evaluated.push_back(sha);
        if cache.evaluated.len() > EVALUATED_MAX
            && let Some(oldest) = cache.evaluated.pop_front()
            && let Some(kept) = cache.scripts.remove(&oldest)
        {
            cache.source_bytes -= kept.script.source.len() as u64;
        }
    }

    /// Forgets all.
    pub(crate) fn flush(&self) {
        *self.cache.write() = Cache::default();
    }

    /// A script begins to run at this time of the monotonic clock, in microseconds; it ends when what is returned is dropped.
    pub(crate) fn begin(&self, now_us: u64, meter: &Meter) -> Run<'_> {
        self.running.begin(now_us, meter.clone());
        Run { scripts: self, meter: meter.clone() }
    }

    /// Whether a script has run for longer than others wait for it; never, if they wait for ever.
    pub(crate) fn is_busy(&self, now_us: u64) -> bool {
        let busy_after_ms = self.settings.busy_after_ms();
        busy_after_ms > 0 && self.running.any_before(now_us.saturating_sub(busy_after_ms * 1000))
    }

    /// Ends the script that has run for longest, and all that keep the server busy. Returns whether any was running.
    pub(crate) fn kill(&self, now_us: u64) -> bool {
        self.running.kill(now_us.saturating_sub(self.settings.busy_after_ms() * 1000))
    }

    /// How many there are, and the bytes of their sources.
    pub fn figures(&self) -> (usize, u64) {
        let cache = self.cache.read();
        (cache.scripts.len(), cache.source_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(number: usize) -> Arc<Script> {
        Arc::new(Script::new(format!("return {number}").as_bytes()).expect("a script"))
    }

    #[test]
    fn scripts_of_eval_are_forgotten_before_they_are_too_many() {
        let scripts = Scripts::default();
        let loaded = script(usize::MAX);
        scripts.keep(loaded.clone(), false);
        scripts.keep(loaded.clone(), true);
        for number in 0..EVALUATED_MAX + 10 {
            scripts.keep(script(number), false);
        }
        assert_eq!(scripts.figures().0, EVALUATED_MAX + 1);
        assert!(scripts.find(loaded.sha).is_some() && scripts.find(script(0).sha).is_none());
        assert!(scripts.find(script(EVALUATED_MAX + 9).sha).is_some());
        scripts.flush();
        assert_eq!(scripts.figures(), (0, 0));
    }
}
