//! GROUP: shows the group of servers that this one is a member of, and changes it.
//!
//! ```text
//! MEMBERS, INFO               from this member's view, at once
//! JOIN, REMOVE                to the group; it replies once the change is committed, or refused
//! TRANSFER                    to the group; it replies when the election is about to begin, or refused
//! PEER                        the connection becomes one between members, and speaks RESP no longer
//! ```
//!
//! What it is: a thin layer over the trait [`Group`](engine::group::Group), implemented by the server.
//! What it is not: the decisions of the group, or the protocol between members. Only PEER, the first command
//! of that protocol, passes through here. Stock clients see the group through `sentinel`.

mod change;
mod rows;
mod show;

use engine::{
    CommandError, Context,
    group::{GroupView, NO_GROUP},
};

pub(crate) use rows::ROWS;

/// The group as this server sees it.
///
/// # Errors
/// If this server belongs to no group.
pub(crate) fn view(cx: &Context<'_, '_>) -> Result<GroupView, CommandError> {
    cx.host.group.view().ok_or(CommandError::Text(NO_GROUP))
}
