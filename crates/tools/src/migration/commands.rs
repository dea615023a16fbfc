//! Encoded commands, one after the other, with the end of each.

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Commands {
    pub(super) bytes: Vec<u8>,
    /// The end of each command in `bytes`.
    pub(super) ends: Vec<usize>,
}

/// The encoded arguments of an incomplete command.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    pub(super) bytes: Vec<u8>,
    count: usize,
}

impl Arguments {
    pub(super) fn push(&mut self, argument: &[u8]) {
        push_bulk(&mut self.bytes, argument);
        self.count += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }
}

impl Commands {
    pub(super) fn push(&mut self, arguments: &[&[u8]]) {
        self.push_header(arguments.len());
        arguments.iter().for_each(|argument| push_bulk(&mut self.bytes, argument));
        self.ends.push(self.bytes.len());
    }

    /// Adds a command with these first arguments and the collected last ones, which are cleared.
    pub(super) fn push_gathered(&mut self, first: &[&[u8]], last: &mut Arguments) {
        self.push_header(first.len() + last.count);
        first.iter().for_each(|argument| push_bulk(&mut self.bytes, argument));
        self.bytes.extend_from_slice(&last.bytes);
        self.ends.push(self.bytes.len());
        last.clear();
    }

    fn push_header(&mut self, count: usize) {
        push_number(&mut self.bytes, b'*', count);
    }
}

fn push_bulk(bytes: &mut Vec<u8>, argument: &[u8]) {
    push_number(bytes, b'$', argument.len());
    bytes.extend_from_slice(argument);
    bytes.extend_from_slice(b"\r\n");
}

fn push_number(bytes: &mut Vec<u8>, kind: u8, number: usize) {
    bytes.push(kind);
    bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut commands = Commands::default();
        commands.push(&[b"SELECT", b"3"]);
        let mut members = Arguments::default();
        assert!(members.is_empty());
        members.push(b"a");
        members.push(b"");
        commands.push_gathered(&[b"SADD", b"k"], &mut members);
        let expected: [&[u8]; 2] =
            [b"*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n", b"*4\r\n$4\r\nSADD\r\n$1\r\nk\r\n$1\r\na\r\n$0\r\n\r\n"];
        assert_eq!(commands.bytes, expected.concat());
        assert_eq!(commands.ends, [expected[0].len(), expected.concat().len()]);
        assert!(members.is_empty());
    }
}
