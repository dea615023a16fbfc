//! The items of a record of the log that are not effects: messages to durable channels, and changes of
//! documents.
//!
//! What it is: the encoding of these items, in which a reader finds the end of each. What it is not: a change
//! of the keyspace. Code that applies effects skips these items ([`Effect::decode_next`] does); readers of
//! messages or documents skip the effects of a record.
//!
//! # Encoding
//! A message is [`codec::MESSAGE`], the channel and the payload. A change of documents is
//! [`codec::DOCUMENTS`] and its bytes, which only the crate `documents` can read. Byte strings have their
//! length (LEB128) before them.

use super::codec::{self, Writer};
use super::{Effect, EffectError, Reader};

/// A message in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LoggedMessage<'a> {
    /// The channel to which the message was published.
    pub channel: &'a [u8],
    /// The published bytes.
    pub payload: &'a [u8],
}

/// One item of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// A change.
    Effect(Effect<'a>),
    /// A message to a durable channel.
    Message(LoggedMessage<'a>),
    /// A change of documents, as the crate `documents` encodes it.
    Documents(&'a [u8]),
}

/// Adds a change of documents to a record.
pub fn encode_documents_into(change: &[u8], out: &mut Vec<u8>) {
    out.byte(codec::DOCUMENTS).bytes(change);
}

impl<'a> LoggedMessage<'a> {
    /// The minimum number of bytes of a message in a record.
    pub const BYTES_MIN: usize = 3;

    /// Adds the encoding to `out`.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.byte(codec::MESSAGE).bytes(self.channel).bytes(self.payload);
    }
}

impl<'a> Item<'a> {
    /// Decodes the item at the start of `input` and moves `input` past it; `None` at the end of the input.
    ///
    /// # Errors
    /// If the bytes are no item. `input` is then unchanged.
    pub fn decode_next(input: &mut &'a [u8]) -> Result<Option<Item<'a>>, EffectError> {
        let mut reader = Reader { rest: input };
        let item = match reader.aside()? {
            Some(item) => item,
            None if input.is_empty() => return Ok(None),
            None => Item::Effect(reader.effect()?),
        };
        *input = reader.rest;
        Ok(Some(item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DbId, GlobalOp, KeyOp};

    #[test]
    fn the_bytes_of_both_opcodes_are_pinned() {
        let mut bytes = Vec::new();
        LoggedMessage { channel: b"news", payload: b"xy" }.encode_into(&mut bytes);
        encode_documents_into(b"abc", &mut bytes);
        assert_eq!(bytes, b"\x70\x04news\x02xy\x71\x03abc");
    }

    #[test]
    fn applying_skips_messages_between_effects() {
        let (first, second) = (Effect::Global(GlobalOp::FlushAll), KeyOp::Delete.on(DbId::ZERO, b"k"));
        let messages = [("a", "1"), ("", ""), ("b", "a longer payload")].map(|(channel, payload)| {
            LoggedMessage { channel: channel.as_bytes(), payload: payload.as_bytes() }
        });
        let mut bytes = Vec::new();
        messages[0].encode_into(&mut bytes);
        first.encode_into(&mut bytes);
        messages[1].encode_into(&mut bytes);
        messages[2].encode_into(&mut bytes);
        second.encode_into(&mut bytes);
        encode_documents_into(b"a change", &mut bytes);
        messages[1].encode_into(&mut bytes);
        let (mut items, mut effects, mut rest) = (Vec::new(), Vec::new(), &bytes[..]);
        while let Some(item) = Item::decode_next(&mut rest).unwrap() {
            items.push(item);
        }
        let [a, empty, b] = messages.map(Item::Message);
        assert_eq!(
            items,
            [a, Item::Effect(first), empty, b, Item::Effect(second), Item::Documents(b"a change"), empty]
        );
        rest = &bytes[..];
        while let Some(effect) = Effect::decode_next(&mut rest).unwrap() {
            effects.push(effect);
        }
        assert_eq!(effects, [first, second]);
        assert!(rest.is_empty());
    }

    #[test]
    fn the_shortest_message_is_as_long_as_promised() {
        let mut bytes = Vec::new();
        LoggedMessage { channel: b"", payload: b"" }.encode_into(&mut bytes);
        assert_eq!(bytes.len(), LoggedMessage::BYTES_MIN);
    }

    #[test]
    fn a_truncated_item_is_an_error_and_consumes_nothing() {
        let (mut message, mut documents) = (Vec::new(), Vec::new());
        LoggedMessage { channel: b"channel", payload: b"payload" }.encode_into(&mut message);
        encode_documents_into(b"a change", &mut documents);
        for (bytes, len) in
            [&message, &documents].into_iter().flat_map(|it| (1..it.len()).map(move |len| (it, len)))
        {
            let mut rest = &bytes[..len];
            assert_eq!(Item::decode_next(&mut rest), Err(EffectError::Truncated), "{len} bytes");
            assert_eq!(Effect::decode_next(&mut rest), Err(EffectError::Truncated), "{len} bytes");
            assert_eq!(rest.len(), len);
        }
    }
}
