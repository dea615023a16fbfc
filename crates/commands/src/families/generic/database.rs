//! Databases named by an argument.

use keyspace::DbId;
use wire::number::parse_i64;

use crate::CommandError;

/// The database of this number.
///
/// # Errors
/// The text is no number, no 32-bit number (Redis tells these two apart), or names no database.
pub(crate) fn parse_db(text: &[u8]) -> Result<DbId, CommandError> {
    let number = parse_i64(text).ok_or(CommandError::NotAnInteger)?;
    i32::try_from(number).map_err(|_| {
        CommandError::Text("ERR value is out of range, value must between -2147483648 and 2147483647")
    })?;
    u8::try_from(number).ok().and_then(DbId::new).ok_or(CommandError::DbOutOfRange)
}
