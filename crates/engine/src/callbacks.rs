//! The types of the functions that are named by the row of a command, or by its wait for a key.

use keyspace::DbId;
use wire::Args;

use crate::{CommandError, Context, Unit};

/// The function that runs a command. The arguments include its name.
pub type Handler = fn(&mut Context<'_, '_>, Args<'_>) -> Result<(), CommandError>;

/// Serves a blocked command from a key that is in the wanted state: pops or reads elements, and writes the
/// reply. The arguments are the blocked command's.
///
/// # Errors
/// The error becomes the reply; the function must have changed nothing.
pub type Serve = fn(cx: &mut Context<'_, '_>, key: &[u8], args: Args<'_>) -> Result<(), CommandError>;

/// Whether a client that blocked with these arguments can be served from the key.
pub type Condition = fn(unit: &Unit<'_>, db: DbId, key: &[u8], args: Args<'_>) -> bool;
