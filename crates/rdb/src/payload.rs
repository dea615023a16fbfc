//! DUMP payloads: a type number, a value, the RDB version (two bytes) and a CRC-64 of everything before
//! (eight bytes), both little-endian.

use crate::element::Dialect;
use crate::input::{Input, Reader};
use crate::value::{Value, decode_value};
use crate::{CRC, Error, FILE_VERSION_VALKEY};

/// The newest version of Redis's format that [`restore`] accepts; it also accepts Valkey's version.
pub const PAYLOAD_VERSION_MAX: u16 = 12;

/// The version that [`dump`] writes for values without field expiry and without the times of last deliveries.
/// The encodings of these values need no newer version, and Redis 7.0 accepts no newer version.
const PAYLOAD_VERSION: u16 = 10;
/// The version of payloads with the times of a stream consumer's last delivery.
const PAYLOAD_VERSION_ACTIVE_TIMES: u16 = 11;
/// The version of payloads with field expiry.
const PAYLOAD_VERSION_EXPIRING: u16 = 12;

const FOOTER_BYTES: usize = 10;

/// Why a payload cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The footer is missing, has a newer version, or its checksum does not match.
    #[error("payload version or checksum are wrong")]
    Footer,
    /// The checksum matches, but the value is invalid.
    #[error(transparent)]
    Value(#[from] Error),
}

/// Appends the footer to an encoded value, which begins with its type number, or to encoded libraries.
pub fn dump(mut value: Vec<u8>) -> Vec<u8> {
    let version = match value.first() {
        Some(&crate::types::HASH_METADATA) => PAYLOAD_VERSION_EXPIRING,
        Some(&crate::types::STREAM_LISTPACKS_3) => PAYLOAD_VERSION_ACTIVE_TIMES,
        _ => PAYLOAD_VERSION,
    };
    value.extend_from_slice(&version.to_le_bytes());
    let checksum = CRC.checksum(&value);
    value.extend_from_slice(&checksum.to_le_bytes());
    value
}

/// Decodes the value in a payload.
///
/// # Errors
/// If the footer or the value is invalid.
pub fn restore(payload: &[u8]) -> Result<Value, PayloadError> {
    let (value, dialect) = verified(payload)?;
    let mut reader = Reader::new(value);
    let value_type = reader.byte()?;
    let value = decode_value(value_type, dialect, &mut reader)?;
    if reader.is_at_end() { Ok(value) } else { Err(Error::Malformed("end of the payload").into()) }
}

/// Verifies the footer of a payload; returns the bytes before the footer, and the dialect of their encodings.
pub(crate) fn verified(payload: &[u8]) -> Result<(&[u8], Dialect), PayloadError> {
    let value_len = payload.len().checked_sub(FOOTER_BYTES).ok_or(PayloadError::Footer)?;
    let mut footer = Reader::new(&payload[value_len..]);
    let version = u16::from_le_bytes(footer.array()?);
    let checksum = u64::from_le_bytes(footer.array()?);
    // Unlike in files, zeros do not stand for an absent checksum here.
    let intact = checksum == CRC.checksum(&payload[..value_len + 2]);
    let dialect = match version {
        FILE_VERSION_VALKEY => Dialect::Valkey,
        ..=PAYLOAD_VERSION_MAX => Dialect::Redis,
        _ => return Err(PayloadError::Footer),
    };
    if intact { Ok((&payload[..value_len], dialect)) } else { Err(PayloadError::Footer) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{value, write_value};
    use crate::value::HashField;
    use crate::writer::Writer;

    /// Encodes a value as DUMP does.
    fn encode(value: &Value) -> Vec<u8> {
        let mut writer = Writer::new();
        write_value(value, &mut writer);
        dump(writer.into_bytes())
    }

    proptest! {
        #[test]
        fn dumped_values_are_restored(value in value()) {
            prop_assert_eq!(restore(&encode(&value)), Ok(value));
        }

        #[test]
        fn one_changed_bit_is_noticed(value in value(), at: prop::sample::Index, bit in 0..8u8) {
            let mut payload = encode(&value);
            let at = at.index(payload.len());
            payload[at] ^= 1 << bit;
            prop_assert_eq!(restore(&payload), Err(PayloadError::Footer));
        }

        #[test]
        fn arbitrary_values_decode_or_are_refused(value_type in 0..30u8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut value = vec![value_type];
            value.extend(bytes);
            let _ = restore(&dump(value));
        }
    }

    /// Payloads made by Redis 7.0.15 and by Valkey 9.1, with checksums that are computed here.
    #[test]
    fn payloads_of_redis_are_understood() {
        let text = |bytes: &str| bytes.as_bytes().to_vec();
        // SET s hello; DUMP s
        let payload = b"\x00\x05hello\x0a\x00";
        let mut with_checksum = payload.to_vec();
        with_checksum.extend_from_slice(&CRC.checksum(payload).to_le_bytes());
        assert_eq!(restore(&with_checksum), Ok(Value::String(text("hello"))));
        let without = [&payload[..], &[0; 8]].concat();
        assert_eq!(restore(&without), Err(PayloadError::Footer));
        // HSET h f v; HPEXPIREAT h 4000000000000 FIELDS 1 f; DUMP h, in Valkey 9.1.
        let expiring = b"\x16\x01\x01f\x01v\x00\x40\x94\x52\xa3\x03\x00\x00\x50\x00";
        let mut with_checksum = expiring.to_vec();
        with_checksum.extend_from_slice(&CRC.checksum(expiring).to_le_bytes());
        let field = HashField { name: text("f"), value: text("v"), expire_at_ms: Some(4_000_000_000_000) };
        assert_eq!(restore(&with_checksum), Ok(Value::Hash(vec![field])));
        // The check value published with the CRC algorithm.
        assert_eq!(CRC.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }
}
