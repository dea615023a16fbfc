//! Scripts, as all workers share them: the loaded ones, the running ones, and the settings.
//!
//! The machine of one worker is in `script_machine`, the commands are in `commands::scripts`.
//!
//! Invariants
//! - A script is one unit or a part of one: it runs with the locks of its keys, and all its effects are in
//!   one record.
//! - A script that touches an undeclared key locks the slot of the key if that is possible without waiting.
//!   If not, the script's effects are undone, and it runs again with every slot locked. Its first run was
//!   visible to no other client.

mod cache;
mod declared;
mod running;
mod settings;

pub use cache::{OffloadedScript, Run, Script, Scripts};
pub use declared::traits_of;
pub use running::{Kill, RunningFunction, ScriptKind};
pub use settings::ScriptSettings;
