//! Trimming by MAXLEN and MINID, for XADD and XTRIM.

use engine::{CommandError, Context, EventClass};
use keyspace::{KeyOp, StreamId, StreamView};
use wire::{Args, number::parse_i64};

use super::{id, references::References, stream};

/// The default limit of removed entries with `~`, which removes only whole blocks.
const LIMIT: usize = 10_000;

/// The number of entries that are trimmed in the time of one element of other commands.
const ENTRIES_PER_ELEMENT: usize = 16;

const LIMIT_WITHOUT_ABOUT: CommandError =
    CommandError::Text("ERR syntax error, LIMIT cannot be used without the special ~ option");

/// The entries to remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Threshold {
    /// All except this many of the last entries.
    Len(usize),
    /// All entries with an id below this one.
    Min(StreamId),
}

/// The trimming that a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Trim {
    threshold: Threshold,
    /// Only whole blocks are removed (`~`); no effect with ACKED.
    whole_blocks: bool,
    limit: usize,
    references: References,
}

/// The options of a trim while they are parsed.
#[derive(Default)]
pub(super) struct TrimWords {
    threshold: Option<Threshold>,
    whole_blocks: bool,
    limit: Option<usize>,
    references: Option<References>,
}

impl TrimWords {
    /// Parses the option at the start of `words`; returns its number of words, or `None` if it is no trim
    /// option.
    pub(super) fn take(&mut self, words: Args<'_>) -> Result<Option<usize>, CommandError> {
        let has_value = words.len() > 1;
        match words.at(0).to_ascii_lowercase().as_slice() {
            kind @ (b"maxlen" | b"minid") if has_value => {
                if self.threshold.is_some() {
                    return Err(CommandError::Text(
                        "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                    ));
                }
                let has_mode = words.len() > 2 && matches!(words.at(1), b"~" | b"=");
                self.whole_blocks = has_mode && words.at(1) == b"~";
                let value = words.at(1 + usize::from(has_mode));
                self.threshold = Some(if kind == b"maxlen" {
                    Threshold::Len(size(value, "ERR The MAXLEN argument must be >= 0.")?)
                } else {
                    Threshold::Min(id::parse_id(value, 0)?)
                });
                Ok(Some(2 + usize::from(has_mode)))
            }
            b"limit" if has_value => {
                self.limit = Some(size(words.at(1), "ERR The LIMIT argument must be >= 0.")?);
                Ok(Some(2))
            }
            word => Ok(References::take(&mut self.references, word).then_some(1)),
        }
    }

    /// As `finish`; `None` if no trim is asked for.
    pub(super) fn finish_optional(self) -> Result<Option<Trim>, CommandError> {
        match (self.threshold, self.limit) {
            (None, None) => Ok(None),
            (None, Some(0)) => Err(LIMIT_WITHOUT_ABOUT),
            _ => self.finish().map(Some),
        }
    }

    /// Checks the options together, and returns the trim that they ask for.
    fn finish(self) -> Result<Trim, CommandError> {
        let TrimWords { threshold, whole_blocks, limit, references } = self;
        let threshold = threshold.ok_or(CommandError::Text(match limit {
            Some(1..) => "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            _ => "ERR syntax error, XTRIM must be called with a trimming strategy",
        }))?;
        if limit.is_some() && !whole_blocks {
            return Err(LIMIT_WITHOUT_ABOUT);
        }
        let limit = match limit {
            None if whole_blocks => LIMIT,
            None | Some(0) => usize::MAX,
            Some(limit) => limit,
        };
        Ok(Trim { threshold, whole_blocks, limit, references: references.unwrap_or_default() })
    }
}

fn size(value: &[u8], negative: &'static str) -> Result<usize, CommandError> {
    let number = parse_i64(value).ok_or(CommandError::NotAnInteger)?;
    usize::try_from(number).map_err(|_| CommandError::Text(negative))
}

impl Trim {
    /// The estimated work, in elements.
    fn work(&self, stream: StreamView<'_>) -> usize {
        let entries = match self.threshold {
            Threshold::Len(len) => stream.len().saturating_sub(len),
            Threshold::Min(_) => stream.len(),
        };
        // With KEEPREF no reference is looked up, and at most one block is not removed as a whole.
        match self.references {
            References::Kept => entries.min(self.limit) / ENTRIES_PER_ELEMENT,
            _ => entries.min(self.limit),
        }
    }

    /// The id up to which all entries are removed. Not for ACKED, which may keep some of these entries.
    fn through(&self, stream: StreamView<'_>) -> Option<StreamId> {
        match self.threshold {
            Threshold::Len(len) => stream.trim_to_len(len, self.whole_blocks, self.limit),
            Threshold::Min(min) => stream.trim_to_id(min, self.whole_blocks, self.limit),
        }
    }

    /// Makes sure that the log has room for a trim of the stream at a key. `added_bytes` is the size of an
    /// entry that is added before the trim, or 0.
    pub(super) fn require_room(
        &self,
        cx: &Context<'_, '_>,
        key: &[u8],
        added_bytes: u64,
    ) -> Result<(), CommandError> {
        // With KEEPREF, the effect names one id, however many entries it removes.
        if self.references == References::Kept {
            return Ok(());
        }
        let Some(stream) = stream(cx.unit.peek(cx.session.db, key))? else { return Ok(()) };
        let entries = match self.threshold {
            Threshold::Len(len) => stream.len().saturating_sub(len),
            Threshold::Min(min) => stream.range(StreamId::ZERO..=min).take(self.limit).count(),
        };
        // The new entry may go, too.
        let entries = entries.min(self.limit) + 1;
        cx.require_room(added_bytes + self.references.record_bytes_max(stream, key, entries))
    }

    /// Trims the stream at a key; returns the number of removed entries.
    pub(super) fn make(&self, cx: &mut Context<'_, '_>, key: &[u8]) -> Result<usize, CommandError> {
        let db = cx.db();
        let Some(stream) = stream(cx.unit.get(db, key))? else { return Ok(0) };
        let removed = match self.references {
            References::Acknowledged => {
                let excess = match self.threshold {
                    Threshold::Len(len) => stream.len().saturating_sub(len),
                    Threshold::Min(_) => usize::MAX,
                };
                let through = match self.threshold {
                    Threshold::Len(_) => StreamId::MAX,
                    Threshold::Min(min) => min.previous().unwrap_or(StreamId::ZERO),
                };
                let entries = stream.range(StreamId::ZERO..=through).map(|entry| entry.id);
                let ids: Vec<_> = entries
                    .filter(|&id| References::none_to(stream, id))
                    .take(excess.min(self.limit))
                    .collect();
                References::delete_silently(cx, key, &ids)
            }
            references => {
                let Some(through) = self.through(stream) else { return Ok(0) };
                if references == References::Deleted {
                    let ids: Vec<_> = stream.range(StreamId::ZERO..=through).map(|entry| entry.id).collect();
                    References::drop_to(cx, key, &ids);
                }
                cx.apply(key, KeyOp::StreamTrim { through }).removed as usize
            }
        };
        if removed > 0 {
            cx.notify(EventClass::STREAM, "xtrim", key);
        }
        Ok(removed)
    }
}

/// `XTRIM key <MAXLEN | MINID> [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]`
pub(super) fn xtrim(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let (mut words, mut rest) = (TrimWords::default(), args.skip(2));
    while !rest.is_empty() {
        let taken = words.take(rest)?.ok_or(CommandError::Syntax)?;
        rest = rest.skip(taken);
    }
    let trim = words.finish()?;
    let elements_max = cx.elements_max();
    if let Some(stream) = stream(cx.unit.get(cx.session.db, args.at(1)))? {
        elements_max.require(trim.work(stream))?;
    }
    trim.require_room(cx, args.at(1), 0)?;
    let removed = trim.make(cx, args.at(1))?;
    cx.reply.count(removed);
    Ok(())
}
