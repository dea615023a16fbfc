//! DUMP payloads of function libraries. For each library, a payload has the opcode that files use, and the
//! source of the library. The footer of all payloads follows.

use crate::input::{Input, Reader};
use crate::opcodes;
use crate::payload;
use crate::writer::Writer;
use crate::{Error, PayloadError};

/// Why the libraries of a payload cannot be restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LibrariesError {
    /// The payload is invalid.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// The payload contains other data.
    #[error("something is not a library")]
    NoLibrary,
}

/// The payload of libraries with these sources.
pub fn dump_libraries<'c>(sources: impl Iterator<Item = &'c [u8]>) -> Vec<u8> {
    let mut writer = Writer::new();
    sources.for_each(|source| writer.library(source));
    payload::dump(writer.into_bytes())
}

/// Calls `visit` with the source of each library in a payload.
///
/// # Errors
/// A [`LibrariesError`], possibly after some libraries were visited, or an error of `visit`.
pub fn restore_libraries<E: From<LibrariesError>>(
    payload: &[u8],
    mut visit: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (libraries, _) = payload::verified(payload).map_err(LibrariesError::Payload)?;
    let mut reader = Reader::new(libraries);
    let of_bytes = |error: Error| LibrariesError::Payload(error.into());
    let mut source = Vec::new();
    while !reader.is_at_end() {
        if reader.byte().map_err(of_bytes)? != opcodes::FUNCTION {
            return Err(LibrariesError::NoLibrary.into());
        }
        reader.string(&mut source).map_err(of_bytes)?;
        visit(&source)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restored(payload: &[u8]) -> Result<Vec<Vec<u8>>, LibrariesError> {
        let mut sources = Vec::new();
        restore_libraries(payload, |source| {
            sources.push(source.to_vec());
            Ok::<(), LibrariesError>(())
        })?;
        Ok(sources)
    }

    #[test]
    fn dumped_libraries_are_restored() {
        let long = vec![b'x'; 100_000];
        let cases: [&[&[u8]]; 3] = [&[], &[b"one"], &[b"one", b"", &long]];
        for sources in cases {
            assert_eq!(
                restored(&dump_libraries(sources.iter().copied())).as_deref(),
                Ok(&*sources.iter().map(|it| it.to_vec()).collect::<Vec<_>>())
            );
        }
    }

    /// A payload made by Redis 7.0.15.
    #[test]
    fn a_payload_of_redis_is_understood() {
        let source = b"#!lua name=a\nredis.register_function(\"f\", function() end)";
        let payload = [b"\xf59", &source[..], b"\n\x00Q_\xd8i\xec\xb3f\xfa"].concat();
        assert_eq!(restored(&payload), Ok(vec![source.to_vec()]));
        assert_eq!(dump_libraries([&source[..]].into_iter()), payload);
        assert_eq!(restored(b"\n\x00]\x9b\\@\x0f\x7f\xa2\xda"), Ok(vec![]));
    }

    #[test]
    fn invalid_payloads_are_refused() {
        let payload = dump_libraries([&b"one"[..]].into_iter());
        for end in 0..payload.len() {
            assert_eq!(restored(&payload[..end]), Err(PayloadError::Footer.into()), "{end} bytes");
        }
        assert_eq!(restored(&payload::dump(b"\xf4\x01a".to_vec())), Err(LibrariesError::NoLibrary));
        let cut = restored(&payload::dump(b"\xf5\x05ab".to_vec()));
        assert_eq!(cut, Err(PayloadError::Value(Error::Truncated).into()));
    }
}
