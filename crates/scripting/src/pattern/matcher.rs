//! Matches one pattern at one position of a subject.

use super::class::{in_set, is_member, item_end};
use crate::meter::Steps;

/// A pattern, without the `^` that anchors it.
pub(super) type Pattern<'a> = &'a [u8];

/// Maximum number of captures of a pattern.
pub(super) const CAPTURES_MAX: usize = 32;

/// Maximum recursion of a match. Each repeated or optional item and each parenthesis takes one level.
const DEPTH_MAX: u32 = 200;

/// Why a match was given up.
#[derive(Debug)]
pub(super) enum Fault {
    /// The pattern is malformed or too complex.
    Malformed(&'static str),
    /// The script must stop; the error says so to Lua.
    Stopped(mlua::Error),
}

impl From<Fault> for mlua::Error {
    fn from(fault: Fault) -> mlua::Error {
        match fault {
            Fault::Malformed(text) => mlua::Error::runtime(text),
            Fault::Stopped(error) => error,
        }
    }
}

/// The state of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Capture {
    /// The capture has begun here and is not closed.
    Open(usize),
    /// The capture is the bytes from start to end.
    Bytes(usize, usize),
    /// The capture is a position, written `()`.
    Place(usize),
}

pub(super) struct Matcher<'a, 'm> {
    subject: &'a [u8],
    pattern: Pattern<'a>,
    captures: Vec<Capture>,
    steps: Steps<'m>,
    depth: u32,
}

type Matched = Result<Option<usize>, Fault>;

impl<'a, 'm> Matcher<'a, 'm> {
    pub(super) fn new(subject: &'a [u8], pattern: Pattern<'a>, steps: Steps<'m>) -> Matcher<'a, 'm> {
        Matcher { subject, pattern, captures: Vec::new(), steps, depth: 0 }
    }

    /// Matches at this position; returns the end of the match.
    pub(super) fn match_at(&mut self, start: usize) -> Matched {
        self.captures.clear();
        self.depth = 0;
        self.run(start, 0)
    }

    /// The captures of the last match.
    pub(super) fn captures(&self) -> &[Capture] {
        &self.captures
    }

    /// Matches the rest of the pattern one level deeper.
    fn nested(&mut self, at: usize, next: usize) -> Matched {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Fault::Malformed("pattern too complex"));
        }
        let matched = self.run(at, next)?;
        self.depth -= 1;
        Ok(matched)
    }

    /// Matches the pattern from its byte `next` on at the position `at` of the subject.
    fn run(&mut self, mut at: usize, mut next: usize) -> Matched {
        loop {
            self.steps.step().map_err(Fault::Stopped)?;
            let Some(&first) = self.pattern.get(next) else { return Ok(Some(at)) };
            match (first, self.pattern.get(next + 1).copied()) {
                (b'(', Some(b')')) => return self.capture(Capture::Place(at), at, next + 2),
                (b'(', _) => return self.capture(Capture::Open(at), at, next + 1),
                (b')', _) => return self.close(at, next + 1),
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                (b'%', Some(b'b')) => match self.balanced(at, next + 2)? {
                    Some(end) => (at, next) = (end, next + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, next + 2)? {
                    Some(end) => next = end,
                    None => return Ok(None),
                },
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.repeated(at, digit)? {
                    Some(end) => (at, next) = (end, next + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = item_end(self.pattern, next)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.fits(at, next, end)
                                && let Some(matched) = self.nested(at + 1, end + 1)?
                            {
                                return Ok(Some(matched));
                            }
                            next = end + 1;
                        }
                        Some(b'*') => return self.longest(at, at, next, end),
                        Some(b'+') if self.fits(at, next, end) => return self.longest(at, at + 1, next, end),
                        Some(b'+') => return Ok(None),
                        Some(b'-') => return self.shortest(at, next, end),
                        _ if self.fits(at, next, end) => (at, next) = (at + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    #[inline]
    fn fits(&self, at: usize, start: usize, end: usize) -> bool {
        self.subject.get(at).is_some_and(|&byte| is_member(byte, self.pattern, start, end))
    }

    /// Matches an item as often as possible, but at least up to the position `least`, followed by the rest of
    /// the pattern.
    fn longest(&mut self, at: usize, least: usize, start: usize, end: usize) -> Matched {
        let mut last = at;
        while self.fits(last, start, end) {
            self.steps.step().map_err(Fault::Stopped)?;
            last += 1;
        }
        for last in (least..=last).rev() {
            if let Some(matched) = self.nested(last, end + 1)? {
                return Ok(Some(matched));
            }
        }
        Ok(None)
    }

    /// Matches an item as rarely as possible, followed by the rest of the pattern.
    fn shortest(&mut self, mut at: usize, start: usize, end: usize) -> Matched {
        loop {
            if let Some(matched) = self.nested(at, end + 1)? {
                return Ok(Some(matched));
            }
            if !self.fits(at, start, end) {
                return Ok(None);
            }
            at += 1;
        }
    }

    fn capture(&mut self, capture: Capture, at: usize, next: usize) -> Matched {
        if self.captures.len() == CAPTURES_MAX {
            return Err(Fault::Malformed("too many captures"));
        }
        let before = self.captures.len();
        self.captures.push(capture);
        let matched = self.nested(at, next)?;
        if matched.is_none() {
            self.captures.truncate(before);
        }
        Ok(matched)
    }

    fn close(&mut self, at: usize, next: usize) -> Matched {
        let open = self.captures.iter().rposition(|capture| matches!(capture, Capture::Open(_)));
        let Some(index) = open else { return Err(Fault::Malformed("invalid pattern capture")) };
        let before = self.captures[index];
        if let Capture::Open(start) = before {
            self.captures[index] = Capture::Bytes(start, at);
        }
        let matched = self.nested(at, next)?;
        if matched.is_none() {
            self.captures[index] = before;
        }
        Ok(matched)
    }

    /// `%bxy`: the end of a balanced run from `x` to `y`.
    fn balanced(&mut self, at: usize, next: usize) -> Matched {
        let (Some(&open), Some(&close)) = (self.pattern.get(next), self.pattern.get(next + 1)) else {
            return Err(Fault::Malformed("unbalanced pattern"));
        };
        if self.subject.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1usize;
        for (index, &byte) in self.subject.iter().enumerate().skip(at + 1) {
            self.steps.step().map_err(Fault::Stopped)?;
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(index + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: the end of the item in the pattern, if the position is before a member of the set and after
    /// a non-member.
    fn frontier(&self, at: usize, next: usize) -> Matched {
        if self.pattern.get(next) != Some(&b'[') {
            return Err(Fault::Malformed("missing '[' after '%f' in pattern"));
        }
        let end = item_end(self.pattern, next)?;
        let inside = &self.pattern[next + 1..end - 1];
        let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
        let here = self.subject.get(at).copied().unwrap_or(0);
        Ok((!in_set(before, inside) && in_set(here, inside)).then_some(end))
    }

    /// `%1`: the text of a capture once more.
    fn repeated(&self, at: usize, digit: u8) -> Matched {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        match self.captures.get(index) {
            Some(&Capture::Bytes(start, end)) => {
                let wanted = &self.subject[start..end];
                Ok(self.subject[at..].starts_with(wanted).then_some(at + wanted.len()))
            }
            // A position capture has no text.
            Some(Capture::Place(_)) => Ok(None),
            _ => Err(Fault::Malformed("invalid capture index")),
        }
    }
}
