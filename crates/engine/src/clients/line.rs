//! The line that CLIENT LIST and CLIENT INFO print for a client.
//!
//! The fields are those of Redis 7.2 in its order, because tools parse them. A few fields of later versions
//! stand between these, at the places where the later versions show them. A field for a feature that Sheaf
//! lacks shows the value that Redis shows when the feature is unused. Sheaf's own fields come last, where
//! Redis adds new fields.

use std::{fmt::Write as _, sync::atomic::Ordering::Relaxed};

use storage::Durability;

use super::{Client, ClientKind, NO_COMMAND, NO_TRANSACTION};
use crate::CommandTable;

/// Size of the static output buffer of a client in Redis; replies beyond it go to a list.
const STATIC_OUTPUT_BYTES: u64 = 16 << 10;

impl Client {
    /// Appends the line, without a line end.
    pub fn render(&self, table: &CommandTable, now_ms: u64, out: &mut String) {
        let labels = self.labels.lock();
        let (query, output) = (self.query_buffer_bytes.load(Relaxed), self.output_buffer_bytes.load(Relaxed));
        let (input_bytes, output_bytes) = self.traffic_bytes();
        let [channels, patterns, shards, from_log] = self.subscriptions();
        // As Redis reports it: a buffer of fixed size, and a list with the overflow.
        let static_output = output.min(STATIC_OUTPUT_BYTES);
        let list_output = output - static_output;
        let result = write!(
            out,
            "id={id} addr={peer} laddr={local} fd={fd} name={name} age={age} idle={idle} flags={flags} capa={capa} db={db} sub={channels} \
             psub={patterns} ssub={shards} multi={queued} watch={watched} qbuf={query} qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl={static_output} oll={lists} \
             omem={list_output} tot-mem={memory} events={events} cmd={command} user={user} redir={redirect} resp={resp} \
             lib-name={library} lib-ver={library_version} tot-net-in={input_bytes} tot-net-out={output_bytes} \
             tot-cmds={commands} xsub={from_log} durability={durability} uid={uid}",
            id = self.id,
            peer = self.peer,
            local = self.local,
            fd = self.fd,
            name = labels.name.as_str(),
            age = now_ms.saturating_sub(self.created_ms) / 1000,
            idle = self.idle_seconds(now_ms),
            flags = self.flag_letters(),
            capa = self.capabilities(),
            db = self.db.load(Relaxed),
            queued = self.queued_count(),
            watched = self.watched(),
            memory = self.memory_bytes(),
            events = if output > 0 { "rw" } else { "r" },
            lists = u8::from(list_output > 0),
            command = self.last_command_name(table),
            user = String::from_utf8_lossy(&self.user()),
            redirect = self.shown_redirect(),
            resp = self.resp.load(Relaxed),
            library = labels.library.as_str(),
            library_version = labels.library_version.as_str(),
            commands = self.commands.load(Relaxed),
            durability = self.durability_name(),
            uid = self.peer_uid.map(i64::from).unwrap_or(-1),
        );
        debug_assert!(result.is_ok(), "writing to a string does not fail");
    }

    /// The number of commands queued since MULTI; -1 without a transaction.
    fn queued_count(&self) -> i64 {
        match self.queued.load(Relaxed) {
            NO_TRANSACTION => -1,
            count => count.into(),
        }
    }

    /// The client that gets the invalidations; -1 if this client tracks nothing, 0 if it gets them itself.
    fn shown_redirect(&self) -> i64 {
        if self.tracking.load(Relaxed) { self.redirect.load(Relaxed) as i64 } else { -1 }
    }

    pub(super) fn flag_letters(&self) -> String {
        let flags = [
            (self.monitoring.load(Relaxed), 'O'),
            (self.kind() == ClientKind::Replica, 'S'),
            (self.kind() == ClientKind::PubSub, 'P'),
            (self.queued_count() >= 0, 'x'),
            (self.is_blocked(), 'b'),
            (self.tracking.load(Relaxed), 't'),
            (self.redirect_broken.load(Relaxed), 'R'),
            (self.tracks_prefixes.load(Relaxed), 'B'),
            (self.closing.load(Relaxed), 'c'),
            (self.killed.load(Relaxed), 'A'),
            (self.peer_uid.is_some(), 'U'),
            (self.no_evict.load(Relaxed), 'e'),
            (self.no_touch.load(Relaxed), 'T'),
            (self.import_source.load(Relaxed), 'I'),
        ];
        let letters: String = flags.iter().filter(|(set, _)| *set).map(|(_, letter)| *letter).collect();
        if letters.is_empty() { "N".to_string() } else { letters }
    }

    fn last_command_name(&self, table: &CommandTable) -> &'static str {
        match self.last_command.load(Relaxed) {
            NO_COMMAND => "NULL",
            row => table.rows().get(row as usize).map_or("NULL", |row| row.name),
        }
    }

    fn durability_name(&self) -> &'static str {
        let wish = self.durability.load(Relaxed);
        let named = Durability::NAMES.iter().find(|(_, durability)| *durability as u8 == wish);
        named.map_or("default", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use keyspace::DbId;
    use wire::Protocol;

    use super::*;
    use crate::{
        clients::{Clients, Connected, Label, tests::connected},
        row::samples,
    };

    fn line(client: &Client, now_ms: u64) -> String {
        let mut out = String::new();
        client.render(samples::table(), now_ms, &mut out);
        out
    }

    #[test]
    fn a_new_client_reads_as_in_redis() {
        let client = Clients::new().register(connected("127.0.0.1:52001"));
        let memory = size_of::<Client>();
        assert_eq!(
            line(&client, 3_999),
            format!(
                "id=1 addr=127.0.0.1:52001 laddr=127.0.0.1:6379 fd=8 name= age=2 idle=2 flags=N capa= db=0 sub=0 psub=0 \
                 ssub=0 multi=-1 watch=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
                 tot-mem={memory} events=r cmd=NULL user=default redir=-1 resp=2 lib-name= lib-ver= tot-net-in=0 \
                 tot-net-out=0 tot-cmds=0 xsub=0 durability=default uid=-1"
            )
        );
    }

    #[test]
    fn a_client_of_a_unix_socket_shows_its_user() {
        let peer = Connected { peer_uid: Some(1000), ..connected("/run/sheaf.sock:0") };
        let client = Clients::new().register(peer);
        let shown = line(&client, 2_000);
        assert!(shown.contains(" addr=/run/sheaf.sock:0 ") && shown.contains(" flags=U "), "{shown}");
        assert!(shown.ends_with(" uid=1000") && client.is_local(), "{shown}");
    }

    #[test]
    fn every_change_is_shown() {
        let client = Clients::new().register(connected("127.0.0.1:52001"));
        let row = samples::table().rows().iter().position(|row| row.name == "client|list").expect("a row");
        client.runs(row, 2_500);
        client.received(11);
        client.sent(12);
        client.set_buffered(13, 14);
        client.set_db(DbId::new(3).expect("in range"));
        client.set_protocol(Protocol::Resp3);
        client.set_durability(Some(Durability::Interval));
        client.change_labels(|labels| {
            labels.name = Label::parse(b"jobs").expect("valid");
            labels.library = Label::parse(b"redis-py").expect("valid");
            labels.library_version = Label::parse(b"5.0.1").expect("valid");
        });
        client.set_no_evict(true);
        client.set_no_touch(true);
        client.set_monitoring(true);
        client.set_closing();
        client.set_queued(Some(2));
        client.set_queued(Some(2));
        client.set_subscriptions([5, 6, 7, 8]);
        client.kill();
        let shown = line(&client, 5_000);
        for field in [
            "name=jobs",
            "age=4",
            "idle=2",
            "flags=OPxcAeT",
            "sub=5",
            "psub=6",
            "ssub=7",
            "multi=2",
            "db=3",
            "qbuf=13",
            "obl=14",
            "events=rw",
            "cmd=client|list",
            "resp=3",
            "lib-name=redis-py",
            "lib-ver=5.0.1",
            "tot-net-in=11",
            "tot-net-out=12",
            "tot-cmds=1",
            "durability=interval",
        ] {
            assert!(shown.split(' ').any(|shown| shown == field), "{field} is not in {shown}");
        }
        client.set_buffered(0, (16 << 10) + 5);
        let shown = line(&client, 5_000);
        assert!(shown.contains(" obl=16384 oll=1 omem=5 "), "{shown}");
        client.set_durability(None);
        client.set_protocol(Protocol::Resp2);
        let shown = line(&client, 5_000);
        assert!(shown.contains(" durability=default ") && shown.contains(" resp=2 "), "{shown}");
    }
}
