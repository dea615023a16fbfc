//! Parsing of database numbers in arguments.

use engine::CommandError;
use keyspace::DbId;
use wire::number::parse_i64;

/// Parses the number of a database.
///
/// # Errors
/// [`CommandError::NotAnInteger`] if the text is not an integer, `value is out of range` if it does not fit
/// 32 bits; [`CommandError::DbOutOfRange`] if it names no database.
pub(super) fn parse_db(text: &[u8]) -> Result<DbId, CommandError> {
    let number = parse_i64(text).ok_or(CommandError::NotAnInteger)?;
    i32::try_from(number).map_err(|_| {
        CommandError::Text("ERR value is out of range, value must between -2147483648 and 2147483647")
    })?;
    u8::try_from(number).ok().and_then(DbId::new).ok_or(CommandError::DbOutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sixteen_numbers_name_a_database() {
        let beyond = "ERR value is out of range, value must between -2147483648 and 2147483647";
        assert_eq!(parse_db(b"0"), Ok(DbId::ZERO));
        assert_eq!(parse_db(b"15").map(DbId::get), Ok(15));
        for text in ["16", "-1", "256", "2147483647"] {
            assert_eq!(parse_db(text.as_bytes()), Err(CommandError::DbOutOfRange), "{text}");
        }
        for text in ["2147483648", "-2147483649", "9223372036854775807"] {
            assert_eq!(parse_db(text.as_bytes()), Err(CommandError::Text(beyond)), "{text}");
        }
        for text in ["", "x", "01", "9223372036854775808"] {
            assert_eq!(parse_db(text.as_bytes()), Err(CommandError::NotAnInteger), "{text}");
        }
    }
}
