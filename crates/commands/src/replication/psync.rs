//! The commands of replicas that are Redis or Valkey servers: REPLCONF, PSYNC, SYNC.

use engine::{
    CommandError, Context, PeerClaim,
    replication::{KnownStream, RedisClaim, RedisReplica},
};
use wire::{Args, number::parse_i64};

/// The maximum bytes of the address that a replica announces, as in Redis.
const ADDRESS_BYTES_MAX: usize = 255;

/// The error for a flag, in the words of Redis.
const NEITHER_0_NOR_1: &str = "ERR value is out of range, value must between 0 and 1";

/// `REPLCONF option value [option value ...]`: the properties of a replica, sent before PSYNC. Its
/// acknowledgements (ACK) come after PSYNC, when its connection has left the worker, and are not read here.
pub(super) fn replconf(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let mut replica = cx.session.redis_replica.take().unwrap_or_default();
    let noted = note(&mut replica, args.skip(1));
    cx.session.redis_replica = Some(replica);
    if noted? {
        cx.reply.ok();
    }
    Ok(())
}

/// Notes the options; returns whether they are answered.
fn note(replica: &mut RedisReplica, options: Args<'_>) -> Result<bool, CommandError> {
    let mut index = 0;
    while let (Some(option), Some(value)) = (options.get(index), options.get(index + 1)) {
        index += 2;
        match option.to_ascii_lowercase().as_slice() {
            b"listening-port" => {
                let port = parse_i64(value).ok_or(CommandError::NotAnInteger)?;
                replica.port = u16::try_from(port).map_err(|_| CommandError::NotAnInteger)?;
            }
            b"ip-address" if value.len() > ADDRESS_BYTES_MAX => {
                let bytes = value.len();
                return Err(CommandError::Composed(format!(
                    "ERR REPLCONF ip-address provided by replica instance is too long: {bytes} bytes"
                )));
            }
            b"ip-address" => replica.host = shown(value),
            b"capa" => {
                replica.takes_eof |= value.eq_ignore_ascii_case(b"eof");
                replica.takes_new_id |= value.eq_ignore_ascii_case(b"psync2");
            }
            b"version" if is_version(value) => {}
            b"version" => {
                let value = shown(value);
                return Err(CommandError::Composed(format!("ERR Unrecognized version format: {value}")));
            }
            b"rdb-only" => {
                replica.wants_rdb_only = match parse_i64(value).ok_or(CommandError::NotAnInteger)? {
                    0 => false,
                    1 => true,
                    _ => return Err(CommandError::Text(NEITHER_0_NOR_1)),
                };
            }
            b"rdb-filter-only" => {
                let mut filters = value.split(u8::is_ascii_whitespace).filter(|filter| !filter.is_empty());
                if let Some(unknown) = filters.clone().find(|it| !it.eq_ignore_ascii_case(b"functions")) {
                    let unknown = shown(unknown);
                    return Err(CommandError::Composed(format!(
                        "ERR Unsupported rdb-filter-only option: {unknown}"
                    )));
                }
                replica.wants_keys = false;
                replica.wants_functions = filters.next().is_some();
            }
            // As in Redis, these options get no reply: they belong on the connection of a replica.
            b"ack" | b"fack" | b"getack" => return Ok(false),
            _ => {
                let option = shown(option);
                return Err(CommandError::Composed(format!("ERR Unrecognized REPLCONF option: {option}")));
            }
        }
    }
    Ok(true)
}

fn is_version(text: &[u8]) -> bool {
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b'.').collect();
    parts.len() == 3 && parts.iter().all(|part| wire::number::parse_u64(part).is_some_and(|it| it <= 255))
}

/// The visible ASCII characters of a client's text, without spaces, for replies and lines of lists.
fn shown(text: &[u8]) -> String {
    let is_plain = |character: &char| character.is_ascii_graphic();
    String::from_utf8_lossy(text).chars().filter(is_plain).collect()
}

/// `PSYNC replicationid offset` hands the connection over to the stream of commands.
pub(super) fn psync(cx: &mut Context<'_, '_>, args: Args<'_>) -> Result<(), CommandError> {
    if args.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"failover")) {
        return Err(CommandError::Text("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    let offset = parse_i64(args.at(2)).ok_or(CommandError::NotAnInteger)?;
    // The offset is that of the next byte to send. The first byte of the stream has the offset 1.
    let known = u64::try_from(offset).ok().and_then(|next| next.checked_sub(1));
    let known = known.map(|has_bytes| KnownStream { id: args.at(1).into(), has_bytes });
    hand_over(cx, known, true)
}

/// `SYNC` does the same as `PSYNC ? -1`, but the reply begins with the file.
pub(super) fn sync(cx: &mut Context<'_, '_>, _args: Args<'_>) -> Result<(), CommandError> {
    hand_over(cx, None, false)
}

fn hand_over(
    cx: &mut Context<'_, '_>,
    known: Option<KnownStream>,
    is_psync: bool,
) -> Result<(), CommandError> {
    let replication = &cx.host.replication;
    if let Some(refused) = replication.refuses_reads() {
        return Err(CommandError::Text(refused));
    }
    if replication.shows_nothing() {
        return Err(CommandError::Text("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    let replica = *cx.session.redis_replica.take().unwrap_or_default();
    cx.session.claim = Some(PeerClaim::Redis(Box::new(RedisClaim { replica, known, is_psync })));
    // The new owner of the connection sends the answer.
    cx.session.closing = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, check};

    #[test]
    fn replconf_answers_as_redis() {
        let long = "x".repeat(256);
        check(&[
            ("replconf listening-port", "-ERR syntax error"),
            ("replconf", "+OK"),
            ("replconf listening-port 6380 capa eof capa psync2", "+OK"),
            ("replconf listening-port x", "-ERR value is not an integer or out of range"),
            ("replconf ip-address 10.0.0.1", "+OK"),
            (
                &format!("replconf ip-address {long}"),
                "-ERR REPLCONF ip-address provided by replica instance is too long: 256 bytes",
            ),
            ("replconf version 9.1.0", "+OK"),
            ("replconf version 9.1", "-ERR Unrecognized version format: 9.1"),
            ("replconf rdb-only 1", "+OK"),
            ("replconf rdb-only x", "-ERR value is not an integer or out of range"),
            ("replconf rdb-only 9", "-ERR value is out of range, value must between 0 and 1"),
            ("replconf rdb-filter-only functions", "+OK"),
            ("replconf rdb-filter-only keys", "-ERR Unsupported rdb-filter-only option: keys"),
            ("replconf rdb-channel 1", "-ERR Unrecognized REPLCONF option: rdb-channel"),
            ("psync ? x", "-ERR value is not an integer or out of range"),
            ("psync ? -1 failover", "-ERR PSYNC FAILOVER can't be sent to a master."),
        ]);
    }

    #[test]
    fn psync_and_sync_hand_the_connection_over_with_what_was_said_before() {
        let claim_of = |commands: &[&str]| {
            let mut server = TestServer::new();
            commands.iter().for_each(|command| _ = server.run(command));
            assert!(server.session.closing);
            match server.session.claim.take() {
                Some(PeerClaim::Redis(claim)) => *claim,
                other => panic!("{other:?}"),
            }
        };
        let said =
            ["replconf listening-port 7000 ip-address h", "replconf capa eof capa psync2", "psync abc 101"];
        let replica = RedisReplica {
            port: 7000,
            host: "h".into(),
            takes_eof: true,
            takes_new_id: true,
            ..Default::default()
        };
        let known = Some(KnownStream { id: b"abc"[..].into(), has_bytes: 100 });
        assert_eq!(claim_of(&said), RedisClaim { replica, known, is_psync: true });
        let functions = RedisReplica {
            wants_rdb_only: true,
            wants_keys: false,
            wants_functions: true,
            ..Default::default()
        };
        let said = ["replconf rdb-only 1", "replconf rdb-filter-only functions", "sync"];
        assert_eq!(claim_of(&said), RedisClaim { replica: functions, known: None, is_psync: false });
        assert_eq!(claim_of(&["psync ? -1"]).known, None);
    }
}
