//! The command families: each module holds the rows of its commands and their handlers.

mod connection;
mod deadline;
mod generic;
mod server;
mod string;

use crate::Row;

/// The rows of every family.
pub(crate) const TABLES: [&[Row]; 4] = [connection::ROWS, generic::ROWS, server::ROWS, string::ROWS];
