//! The complete commands found in one buffer: flat, reused from read to read.

use super::args::{Args, Span};

/// Argument slots that stay allocated between batches (128 KiB).
const ARGS_KEPT_MAX: usize = 16 * 1024;

/// Bytes of inline commands that stay allocated between batches.
const INLINE_BYTES_KEPT_MAX: usize = 64 * 1024;

/// The commands that one call of [`RequestParser::parse`](super::RequestParser::parse) found, for one buffer.
///
/// Holds no bytes of array commands, only where they lie. Meant to be one per worker, not one per connection. Each
/// call of `parse` replaces the contents.
#[derive(Debug, Default)]
pub struct RequestBatch {
    /// Arguments of all commands, one command after the other; while a command is parsed also its first ones.
    pub(super) args: Vec<Span>,
    commands: Vec<Command>,
    /// The arguments of inline commands, without quotes and escapes.
    pub(super) inline_bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    /// One past its last argument in `args`; it begins where the one before ends.
    args_end: u32,
    /// One past its last byte in the buffer.
    end: u32,
    /// Whether its arguments lie in `inline_bytes` and not in the buffer.
    inline: bool,
}

impl RequestBatch {
    /// An empty batch, nothing allocated.
    pub const fn new() -> Self {
        Self { args: Vec::new(), commands: Vec::new(), inline_bytes: Vec::new() }
    }

    /// How many commands it holds.
    #[inline]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Removes all commands. Keeps memory for the next ones, but no more than a usual batch takes.
    #[inline]
    pub fn clear(&mut self) {
        self.args.clear();
        self.commands.clear();
        self.inline_bytes.clear();
        if self.args.capacity() > ARGS_KEPT_MAX || self.inline_bytes.capacity() > INLINE_BYTES_KEPT_MAX {
            self.args.shrink_to(ARGS_KEPT_MAX);
            self.inline_bytes.shrink_to(INLINE_BYTES_KEPT_MAX);
        }
    }

    /// The arguments of command `index` (at least its name), where `buffer` is what was given to `parse`.
    ///
    /// # Panics
    /// If there are not so many commands. Arguments of another buffer than the one parsed are wrong, and reading them
    /// panics if that buffer is shorter.
    #[inline]
    pub fn command<'b>(&'b self, index: usize, buffer: &'b [u8]) -> Args<'b> {
        let command = self.commands[index];
        let bytes = if command.inline { &self.inline_bytes } else { buffer };
        Args::new(bytes, &self.args[self.args_start(index)..command.args_end as usize])
    }

    /// One past the last byte of command `index` in the buffer, for a caller that executes only some of the commands.
    ///
    /// # Panics
    /// If there are not so many commands.
    #[inline]
    pub fn end(&self, index: usize) -> usize {
        self.commands[index].end as usize
    }

    #[inline]
    fn args_start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.commands[before].args_end as usize)
    }

    /// Where the arguments of the command being parsed begin.
    pub(super) fn open_args_start(&self) -> usize {
        self.args_start(self.commands.len())
    }

    /// Makes a command of the arguments added since the last one. `end`: one past its last byte in the buffer.
    #[inline]
    pub(super) fn close_command(&mut self, end: usize, inline: bool) {
        debug_assert!(self.args.len() > self.open_args_start() && end <= u32::MAX as usize);
        self.commands.push(Command { args_end: self.args.len() as u32, end: end as u32, inline });
    }
}
