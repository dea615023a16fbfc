//! The commands of one record, encoded.

use keyspace::{DbId, Items, ScoredItems};
use wire::double::format_double;

use super::ITEMS_MAX;

/// Encoded commands, and how many they are, SELECT aside.
#[derive(Debug, Clone, Default)]
pub(super) struct Commands {
    bytes: Vec<u8>,
    count: usize,
}

impl Commands {
    pub(super) fn command(&mut self, words: &[&[u8]]) {
        self.count += 1;
        wire::request::encode(words, &mut self.bytes);
    }

    /// Adds a SELECT, which does not count: a single command after it needs no transaction.
    pub(super) fn select(&mut self, db: DbId) {
        wire::request::encode(["SELECT", &db.get().to_string()], &mut self.bytes);
    }

    pub(super) fn begin(&mut self, words: usize) {
        self.count += 1;
        self.header(b'*', words);
    }

    pub(super) fn word(&mut self, word: &[u8]) {
        self.header(b'$', word.len());
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
    }

    fn header(&mut self, mark: u8, number: usize) {
        self.bytes.push(mark);
        self.bytes.extend_from_slice(number.to_string().as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Adds a command of these words and all items; several commands if there are too many. `size` items
    /// belong together.
    pub(super) fn items(&mut self, words: &[&[u8]], items: Items<'_>, size: usize) {
        let mut items = items.iter();
        while items.len() > 0 {
            let count = items.len().min(ITEMS_MAX * size);
            self.begin(words.len() + count);
            words.iter().for_each(|word| self.word(word));
            items.by_ref().take(count).for_each(|item| self.word(item));
        }
    }

    /// Adds ZADD with all members; several if there are too many.
    pub(super) fn scored(&mut self, key: &[u8], members: ScoredItems<'_>) {
        let (mut members, mut score_text) = (members.iter(), Vec::new());
        while members.len() > 0 {
            let count = members.len().min(ITEMS_MAX);
            self.begin(2 + 2 * count);
            self.word(b"ZADD");
            self.word(key);
            for (score, member) in members.by_ref().take(count) {
                score_text.clear();
                format_double(score, &mut score_text);
                self.word(&score_text);
                self.word(member);
            }
        }
    }

    pub(super) fn script(&mut self, script: &str, key: &[u8], arguments: &[&[u8]]) {
        self.command(&[&[b"EVAL", script.as_bytes(), b"1", key], arguments].concat());
    }

    /// Adds a script on one key, with arguments and items; several if there are too many items.
    pub(super) fn script_on_items(
        &mut self,
        script: &str,
        key: &[u8],
        arguments: &[&[u8]],
        items: Items<'_>,
        size: usize,
    ) {
        let words: &[&[u8]] = &[b"EVAL", script.as_bytes(), b"1", key];
        self.items(&[words, arguments].concat(), items, size);
    }

    /// Moves the commands to `out`, as a transaction if there are several.
    pub(super) fn end(&mut self, out: &mut Vec<u8>) {
        let is_transaction = self.count > 1;
        if is_transaction {
            wire::request::encode(["MULTI"], out);
        }
        out.append(&mut self.bytes);
        if is_transaction {
            wire::request::encode(["EXEC"], out);
        }
        self.count = 0;
        self.bytes.shrink_to(KEPT_BYTES);
    }
}

/// The maximum memory that is kept between records.
const KEPT_BYTES: usize = 64 << 10;
