//! Geographic positions as members of sorted sets.
//!
//! A place is stored as a member whose score is the number of its cell, so that nearby places have similar
//! scores. Places are no type of their own: all commands on sorted sets work on the same keys.

mod area;
mod cell;
mod earth;
mod place;
mod query;
mod search;

mod rows;
#[cfg(test)]
mod tests;

pub(crate) use rows::ROWS;
