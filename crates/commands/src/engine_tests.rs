//! The engine's rules, tested with real commands: which of them wait, merge, are undone, tracked and handed
//! over.

mod arguments;
mod blocking;
mod clients;
mod events;
mod execute;
mod long_units;
mod merging;
mod replay;
mod room;
mod table;
mod tracking;
mod undo;
mod wrapped;
