//! The console: the page that browsers get at `/`, and the JSON form of the Redis protocol that it uses.
//!
//! ```text
//! GET /  (text/html)          -> index.html                       [`file`]: bytes, media type, tag, gzip
//! GET /_console/NAME          -> modules of JavaScript, styles
//! POST /_redis  [[...], ...]  -> [`parse`] -> words -> a client of the Redis protocol -> [`JsonReply`]
//! ```
//!
//! What it is: the static files, embedded in the binary as they stand in `files/`, and the translations
//! between JSON and the Redis protocol.
//! What it is not: routes and headers, which are `couch`'s; the connection that runs the commands, which is
//! the server's.
//!
//! In `files/`, each view is a module of its own, `api.js` is the only one that sends requests, and, apart
//! from `vendor/`, `dom.js` the only one that makes elements, from texts and never from markup: data of users
//! cannot become a part of the page. The files are served as they are, and load nothing from elsewhere.
//!
//! Invariants
//! - Words and values survive the way through JSON: bytes that are not UTF-8 are `{"base64": "..."}` in both
//!   directions, and an integer that JavaScript would round is `{"integer": "..."}` in a reply. Errors are
//!   always texts: U+FFFD replaces bytes in them that are not UTF-8.
//! - A command that would outlive its request, or change how its connection answers, is refused by name: the
//!   n-th reply belongs to the n-th command.
//! - All files together are smaller than [`FILES_BYTES_MAX`].

#![forbid(unsafe_code)]

mod commands;
mod files;
mod reply;

pub use self::{
    commands::{COMMANDS_MAX, CommandRefusal, Follow, Malformed, parse, refusal},
    files::{FILES_BYTES_MAX, File, file},
    reply::JsonReply,
};
