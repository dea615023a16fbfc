//! The arguments of one command: borrowed from a parsed buffer ([`Args`]) or kept for later ([`OwnedArgs`]).

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Index;

/// The position of an argument in its buffer. 32 bits suffice: no request exceeds
/// `Limits::REQUEST_BYTES_CEILING`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    /// `start + len` must be at most `u32::MAX`.
    #[inline]
    pub(super) fn new(start: usize, len: usize) -> Self {
        debug_assert!(start + len <= u32::MAX as usize);
        Self { start: start as u32, len: len as u32 }
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &bytes[start..start + self.len as usize]
    }
}

/// The arguments of one command; argument 0 is its name. This is a borrowed view, cheap to copy and to slice.
///
/// A parsed command has at least one argument; other views may have none.
#[derive(Clone, Copy)]
pub struct Args<'b> {
    bytes: &'b [u8],
    spans: &'b [Span],
}

impl<'b> Args<'b> {
    #[inline]
    pub(super) fn new(bytes: &'b [u8], spans: &'b [Span]) -> Self {
        Self { bytes, spans }
    }

    /// The number of arguments, the name included.
    #[inline]
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// Whether there are no arguments.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// The argument at `index`; `None` if there is none.
    #[inline]
    pub fn get(self, index: usize) -> Option<&'b [u8]> {
        Some(self.spans.get(index)?.of(self.bytes))
    }

    /// The argument at `index`, with the lifetime of the buffer, unlike `args[index]`.
    ///
    /// # Panics
    /// If `index` is out of range.
    #[inline]
    pub fn at(self, index: usize) -> &'b [u8] {
        self.spans[index].of(self.bytes)
    }

    /// All arguments after the first `count`; none if there are at most `count`.
    #[inline]
    #[must_use]
    pub fn skip(self, count: usize) -> Args<'b> {
        Args { bytes: self.bytes, spans: self.spans.get(count..).unwrap_or_default() }
    }

    /// The first `count` arguments; all of them if there are at most `count`.
    #[inline]
    #[must_use]
    pub fn take(self, count: usize) -> Args<'b> {
        Args { bytes: self.bytes, spans: self.spans.get(..count).unwrap_or(self.spans) }
    }

    /// The arguments in order, from the name on.
    #[inline]
    pub fn iter(self) -> ArgsIter<'b> {
        ArgsIter { bytes: self.bytes, spans: self.spans.iter() }
    }

    /// The length of all arguments together, in bytes.
    pub fn size_bytes(self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    /// # Panics
    /// If `index` is out of range.
    #[inline]
    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}

impl<'b> IntoIterator for Args<'b> {
    type Item = &'b [u8];
    type IntoIter = ArgsIter<'b>;

    #[inline]
    fn into_iter(self) -> ArgsIter<'b> {
        self.iter()
    }
}

impl PartialEq for Args<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Args<'_> {}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(<[u8]>::escape_ascii).map(|text| text.to_string())).finish()
    }
}

/// An iterator over the arguments of [`Args`], in order.
#[derive(Clone)]
pub struct ArgsIter<'b> {
    bytes: &'b [u8],
    spans: std::slice::Iter<'b, Span>,
}

impl<'b> Iterator for ArgsIter<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        Some(self.spans.next()?.of(self.bytes))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.spans.size_hint()
    }
}

impl DoubleEndedIterator for ArgsIter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        Some(self.spans.next_back()?.of(self.bytes))
    }
}

impl ExactSizeIterator for ArgsIter<'_> {}
impl FusedIterator for ArgsIter<'_> {}

/// Owned arguments, for commands that are kept longer than their buffer (queued by MULTI, blocked) or have no
/// buffer (scripts, tests).
///
/// There is one allocation for the bytes, and one for their positions. There are at most `u32::MAX` bytes.
#[derive(Clone, Default)]
pub struct OwnedArgs {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl OwnedArgs {
    /// No arguments and no allocation.
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), spans: Vec::new() }
    }

    /// Appends one argument.
    ///
    /// # Panics
    /// If all arguments together would exceed `u32::MAX` bytes.
    pub fn push(&mut self, arg: &[u8]) {
        assert!(self.bytes.len() + arg.len() <= u32::MAX as usize, "arguments of more than 4 GiB");
        self.spans.push(Span::new(self.bytes.len(), arg.len()));
        self.bytes.extend_from_slice(arg);
    }

    /// Removes all arguments; keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// The arguments as a borrowed view.
    #[inline]
    pub fn as_args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Heap memory in use, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Span>()
    }
}

impl From<Args<'_>> for OwnedArgs {
    fn from(args: Args<'_>) -> Self {
        let mut owned =
            Self { bytes: Vec::with_capacity(args.size_bytes()), spans: Vec::with_capacity(args.len()) };
        args.iter().for_each(|arg| owned.push(arg));
        owned
    }
}

impl<A: AsRef<[u8]>> FromIterator<A> for OwnedArgs {
    fn from_iter<I: IntoIterator<Item = A>>(args: I) -> Self {
        let mut owned = Self::new();
        args.into_iter().for_each(|arg| owned.push(arg.as_ref()));
        owned
    }
}

impl PartialEq for OwnedArgs {
    fn eq(&self, other: &Self) -> bool {
        self.as_args() == other.as_args()
    }
}

impl Eq for OwnedArgs {}

impl fmt::Debug for OwnedArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_args().fmt(f)
    }
}
