//! The complete commands in one buffer, stored in flat vectors whose memory is used again for the next read.

use super::args::{Args, Span};

/// The maximum number of argument slots that stay allocated between batches (128 KiB).
const ARGS_KEPT_MAX: usize = 16 * 1024;

/// The maximum bytes for inline commands that stay allocated between batches.
const INLINE_BYTES_KEPT_MAX: usize = 64 * 1024;

/// The commands found by one call of [`RequestParser::parse`](super::RequestParser::parse) in one buffer.
///
/// A batch has only the positions of the arguments of array commands, not their bytes. One batch is used for
/// all connections of a worker. Each call of `parse` replaces the contents.
#[derive(Debug, Default)]
pub struct RequestBatch {
    /// Arguments of all commands, one command after the other. During parsing, the arguments of the
    /// incomplete command come last.
    pub(super) args: Vec<Span>,
    commands: Vec<Command>,
    /// The arguments of inline commands, without quotes and escapes.
    pub(super) inline_bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    /// The end of the command's arguments in `args`. The arguments begin where those of the previous command
    /// end.
    args_end: u32,
    /// The end of the command's bytes in the buffer.
    end: u32,
    /// Whether the command's arguments are in `inline_bytes` and not in the buffer.
    inline: bool,
}

impl RequestBatch {
    /// An empty batch without allocations.
    pub const fn new() -> Self {
        Self { args: Vec::new(), commands: Vec::new(), inline_bytes: Vec::new() }
    }

    /// Number of commands.
    #[inline]
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether the batch has no commands.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Removes all commands. Keeps the memory of a usual batch for the next one.
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

    /// The arguments of command `index`, at least its name. `buffer` must be the buffer given to `parse`.
    ///
    /// # Panics
    /// If there is no such command. With another buffer the arguments are wrong, and reading them may panic.
    #[inline]
    pub fn command<'b>(&'b self, index: usize, buffer: &'b [u8]) -> Args<'b> {
        let command = self.commands[index];
        let bytes = if command.inline { &self.inline_bytes } else { buffer };
        Args::new(bytes, &self.args[self.args_start(index)..command.args_end as usize])
    }

    /// The end of command `index` in the buffer, for a caller that executes only some of the commands.
    ///
    /// # Panics
    /// If there is no such command.
    #[inline]
    pub fn end(&self, index: usize) -> usize {
        self.commands[index].end as usize
    }

    #[inline]
    fn args_start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.commands[before].args_end as usize)
    }

    /// The start of the arguments of the command being parsed.
    pub(super) fn open_args_start(&self) -> usize {
        self.args_start(self.commands.len())
    }

    /// Makes a command of the arguments that were added since the last command. `end` is the end of the
    /// command's bytes in the buffer.
    #[inline]
    pub(super) fn close_command(&mut self, end: usize, inline: bool) {
        debug_assert!(self.args.len() > self.open_args_start() && end <= u32::MAX as usize);
        self.commands.push(Command { args_end: self.args.len() as u32, end: end as u32, inline });
    }
}
