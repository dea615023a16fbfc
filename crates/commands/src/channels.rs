//! Channels: messages for the present subscribers, and for the readers of durable channels.
//!
//! What it is: the commands. What it is not: the register of subscribers, nor delivery (see [`pubsub`]).
//!
//! Invariants
//! - Outside of transactions, the commands in `subscribe` write the messages that were delivered to the
//!   client ahead of each confirmation. So no message follows the confirmation that ends its subscription.
//! - A message is delivered at once, unless it is published in a transaction, a script or IDEMP, or its
//!   channel is durable. Then it is a notice of its unit (see [`engine::Notice`]), and so are all later
//!   messages of the same client, so that they do not overtake it.
//! - CLIENT REPLY OFF and SKIP suppress no confirmation and no message, because these are no replies. They
//!   suppress an error, which is a reply.

mod introspect;
mod publish;
mod read;
mod rows;
mod subscribe;
#[cfg(test)]
mod tests;

pub(crate) use rows::ROWS;
pub(super) use subscribe::unsubscribe_all;
