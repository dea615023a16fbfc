//! Writes a decoded value in either version of the protocol.

use crate::{Aggregate, ReplyWriter, Value};

impl Value {
    /// Writes the value in the types of the writer's version, without attributes. The recursion is as deep as
    /// the value, which [`decode`](crate::decode()) limits.
    pub fn write(&self, reply: &mut ReplyWriter<'_>) {
        match self {
            Value::Simple(text) => reply.simple(text),
            Value::Error(text) => reply.error(text),
            Value::Integer(number) => reply.integer(*number),
            Value::Bulk(bytes) => reply.bulk(bytes),
            Value::Null => reply.null(),
            Value::Double(number) => reply.double(*number),
            Value::Boolean(truth) => reply.boolean(*truth),
            Value::BigNumber(digits) => reply.big_number(digits),
            Value::Verbatim { format, text } => reply.verbatim(*format, text),
            Value::Array(values) => write_all(reply, Aggregate::Array, values),
            Value::Set(values) => write_all(reply, Aggregate::Set, values),
            Value::Push(values) => write_all(reply, Aggregate::Push, values),
            Value::Map(pairs) => {
                reply.map(pairs.len());
                for (key, value) in pairs {
                    key.write(reply);
                    value.write(reply);
                }
            }
            Value::Attributed { value, .. } => value.write(reply),
        }
    }
}

fn write_all(reply: &mut ReplyWriter<'_>, aggregate: Aggregate, values: &[Value]) {
    reply.aggregate(aggregate, values.len());
    values.iter().for_each(|value| value.write(reply));
}

#[cfg(test)]
mod tests {
    use crate::{DecodeLimits, Protocol, ReplyWriter, decode};

    fn rewritten(bytes: &[u8], protocol: Protocol) -> String {
        let decoded = decode(bytes, &DecodeLimits::DEFAULT).expect("a value");
        let (value, len) = decoded.expect("all of it");
        assert_eq!(len, bytes.len());
        let mut out = Vec::new();
        value.write(&mut ReplyWriter::new(&mut out, protocol));
        out.escape_ascii().to_string()
    }

    #[test]
    fn every_type_is_written_in_either_version() {
        let all: &[(&[u8], &[u8])] = &[
            (b"+OK\r\n", b"+OK\r\n"),
            (b"-ERR a\r\n", b"-ERR a\r\n"),
            (b":-5\r\n", b":-5\r\n"),
            (b"$2\r\n\r\n\r\n", b"$2\r\n\r\n\r\n"),
            (b"_\r\n", b"$-1\r\n"),
            (b",0.1\r\n", b"$3\r\n0.1\r\n"),
            (b"#f\r\n", b":0\r\n"),
            (b"(123456789012345678901\r\n", b"$21\r\n123456789012345678901\r\n"),
            (b"=7\r\ntxt:abc\r\n", b"$3\r\nabc\r\n"),
            (b"*2\r\n:1\r\n_\r\n", b"*2\r\n:1\r\n$-1\r\n"),
            (b"~1\r\n:1\r\n", b"*1\r\n:1\r\n"),
            (b">1\r\n:1\r\n", b"*1\r\n:1\r\n"),
            (b"%1\r\n+a\r\n*0\r\n", b"*2\r\n+a\r\n*0\r\n"),
        ];
        for (resp3, resp2) in all {
            assert_eq!(rewritten(resp3, Protocol::Resp3), resp3.escape_ascii().to_string());
            assert_eq!(rewritten(resp3, Protocol::Resp2), resp2.escape_ascii().to_string());
        }
        assert_eq!(rewritten(b"|1\r\n+a\r\n:1\r\n:2\r\n", Protocol::Resp3), ":2\\r\\n");
        assert_eq!(rewritten(b"*-1\r\n", Protocol::Resp3), "_\\r\\n");
    }
}
