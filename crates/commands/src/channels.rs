//! Channels: messages for whoever listens at the moment.
//!
//! What it is: the commands.
//! What it is not: who has subscribed and how messages get there (see [`pubsub`]).
//!
//! Invariants
//! - Confirmations are written behind what was delivered to the client before, so no message stands behind
//!   the confirmation that ends its subscription.
//! - A message waits for nothing, unless it is published in a transaction or its channel is durable: then for
//!   the record that has it or that it belongs to, and whatever the same client publishes afterwards waits
//!   its turn.
//! - CLIENT REPLY OFF and SKIP take no confirmation and no message back: they are no replies. An error is
//!   one.

mod follow;
mod introspect;
mod publish;
mod rows;
mod subscribe;
#[cfg(test)]
mod tests;

pub(crate) use rows::ROWS;
pub(super) use subscribe::unsubscribe_all;
