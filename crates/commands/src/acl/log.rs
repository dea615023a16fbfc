//! ACL LOG.

use engine::{CommandError, Context};
use wire::{Args, number::parse_i64};

use super::show::too_many;

/// The number of entries that ACL LOG shows if the call has no count.
const ENTRIES_SHOWN: usize = 10;

/// `ACL LOG [count | RESET]`
pub(super) fn log(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    let shown = match args.get(2) {
        _ if args.len() > 3 => return Err(too_many("log")),
        None => ENTRIES_SHOWN,
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            cx.host.users.denials().reset();
            cx.reply.ok();
            return Ok(());
        }
        Some(count) => parse_i64(count).ok_or(CommandError::NotAnInteger)?.max(0) as usize,
    };
    let (host, now_ms) = (cx.host, cx.now_ms());
    let denials = host.users.denials();
    cx.reply.array(denials.iter().len().min(shown));
    for entry in denials.iter().take(shown) {
        let denial = &entry.denial;
        cx.reply.map(10);
        cx.reply.bulk(b"count");
        cx.reply.integer(entry.count as i64);
        let texts: [(&[u8], &[u8]); 4] = [
            (b"reason", denial.reason.name().as_bytes()),
            (b"context", denial.context.name().as_bytes()),
            (b"object", &denial.object),
            (b"username", &denial.user),
        ];
        for text in texts.iter().flat_map(|(name, value)| [name, value]) {
            cx.reply.bulk(text);
        }
        cx.reply.bulk(b"age-seconds");
        cx.reply.double(entry.age_s(now_ms));
        cx.reply.bulk(b"client-info");
        cx.reply.bulk(&denial.client);
        let numbers: [(&[u8], u64); 3] = [
            (b"entry-id", entry.id),
            (b"timestamp-created", entry.created_ms),
            (b"timestamp-last-updated", entry.updated_ms),
        ];
        for (name, number) in numbers {
            cx.reply.bulk(name);
            cx.reply.integer(number as i64);
        }
    }
    Ok(())
}
