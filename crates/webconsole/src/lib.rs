//! The console: the page that browsers get at `/`, and the JSON form of the Redis protocol that it uses.
//!
//! ```text
//! GET /  (text/html)          -> index.html                       [`file`]: bytes, media type, tag, gzip
//! GET /_console/NAME          -> modules of JavaScript, styles
//! POST /_redis  [[...], ...]  -> [`parse`] -> words -> a client of the Redis protocol -> [`JsonReply`]
//! ```
//!
//! This crate has the static files, embedded in the binary as they are in `files/`, and the translations
//! between JSON and the Redis protocol. Routes and headers are in `couch`; the connection that runs the
//! commands is in `server`.
//!
//! In `files/`, each view is a module of its own, and only `api.js` sends requests. Apart from `vendor/`,
//! only `dom.js` makes elements. It makes them from texts and never from markup, so that data of users cannot
//! become a part of the page. The files are served as they are, and load nothing from elsewhere.
//!
//! Invariants
//! - Words and values keep their bytes on the way through JSON. Bytes that are not UTF-8 are `{"base64":
//!   "..."}` in both directions. An integer that JavaScript would round is `{"integer": "..."}` in a reply.
//!   Errors are always texts: U+FFFD replaces bytes in them that are not UTF-8.
//! - A command is refused if it would outlive its request, or change how its connection answers. So the n-th
//!   reply always belongs to the n-th command.
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
