//! The published messages, and the commands that publish them.
//!
//! ```text
//! publisher u32 | channel u32 | number u64 | sent_us u64 | filler      64 bytes, little-endian
//! ```

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = 64;
const STAMP_BYTES: usize = 24;
const FILLER: u8 = b'x';

/// The unique identity of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the publisher.
    pub publisher: u32,
    /// The number of the channel.
    pub channel: u32,
    /// Number of earlier messages of this publisher to this channel.
    pub number: u64,
    /// The time of sending, by the clock of this process.
    pub sent_us: u64,
}

impl Stamp {
    /// The stamp of a message; `None` if it was not sent by this process.
    #[inline]
    pub fn read(message: &[u8]) -> Option<Stamp> {
        let message: &[u8; MESSAGE_BYTES] = message.try_into().ok()?;
        let (publisher, rest) = message.split_first_chunk()?;
        let (channel, rest) = rest.split_first_chunk()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (sent_us, filler) = rest.split_first_chunk()?;
        let stamp = Stamp {
            publisher: u32::from_le_bytes(*publisher),
            channel: u32::from_le_bytes(*channel),
            number: u64::from_le_bytes(*number),
            sent_us: u64::from_le_bytes(*sent_us),
        };
        (filler == [FILLER; MESSAGE_BYTES - STAMP_BYTES]).then_some(stamp)
    }

    fn write(self, message: &mut [u8]) {
        message[..4].copy_from_slice(&self.publisher.to_le_bytes());
        message[4..8].copy_from_slice(&self.channel.to_le_bytes());
        message[8..16].copy_from_slice(&self.number.to_le_bytes());
        message[16..STAMP_BYTES].copy_from_slice(&self.sent_us.to_le_bytes());
    }
}

/// An encoded PUBLISH to one channel, complete except for the stamp.
#[derive(Debug)]
pub struct Publishing {
    command: Vec<u8>,
}

impl Publishing {
    /// A template for this channel.
    pub fn to(channel: &[u8]) -> Publishing {
        let mut command = Vec::new();
        write_command(&mut command, &[b"PUBLISH", channel, &[FILLER; MESSAGE_BYTES]]);
        Publishing { command }
    }

    /// Appends the command with this stamp.
    #[inline]
    pub fn write(&self, stamp: Stamp, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.command);
        let message_at = out.len() - MESSAGE_BYTES - b"\r\n".len();
        stamp.write(&mut out[message_at..]);
    }
}

/// Appends an encoded command.
pub fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    wire::request::encode(words, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_read_as_it_was_written() {
        let stamp = Stamp { publisher: 7, channel: 9, number: 1 << 40, sent_us: 1 << 50 };
        let mut out = Vec::new();
        Publishing::to(b"ch").write(stamp, &mut out);
        assert!(out.starts_with(b"*3\r\n$7\r\nPUBLISH\r\n$2\r\nch\r\n$64\r\n") && out.ends_with(b"x\r\n"));
        let message = &out[out.len() - 66..out.len() - 2];
        assert_eq!(Stamp::read(message), Some(stamp));
        assert_eq!(Stamp::read(&message[1..]), None);
        let mut changed = message.to_vec();
        changed[63] = b'y';
        assert_eq!(Stamp::read(&changed), None, "every byte is checked");
    }
}
