//! LOLWUT: a sheaf, and the version.

use engine::{CommandError, Context};
use wire::Args;

/// Stalks tied in the middle.
const SHEAF: &str = "\\ \\ | / /\n \\ \\|/ /\n  )===(\n / /|\\ \\\n/_/_|_\\_\\\n";

/// `LOLWUT [VERSION version [arg ...]]`: the drawing is the same for all versions.
pub(super) fn lolwut(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if let (Some(word), Some(version)) = (args.get(1), args.get(2))
        && word.eq_ignore_ascii_case(b"version")
    {
        wire::number::parse_i64(version).ok_or(CommandError::NotAnInteger)?;
    }
    let text = format!("{SHEAF}\nRedis ver. {}\n", crate::REDIS_VERSION);
    cx.reply.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::TestServer;

    #[test]
    fn the_version_is_below_the_drawing() {
        let mut server = TestServer::new();
        for line in ["lolwut", "LOLWUT VERSION 5 1 2", "lolwut 1 2", "lolwut version"] {
            let text = server.run(line);
            assert!(text.contains("===") && text.contains("Redis ver. "), "{line}: {text}");
        }
        server.check(&[("lolwut version x", "-ERR value is not an integer or out of range")]);
    }
}
