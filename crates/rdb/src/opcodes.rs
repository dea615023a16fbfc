//! Codes that files have in place of the type number of a value.

pub(crate) const SLOT_IMPORT: u8 = 243;
pub(crate) const SLOT_INFO: u8 = 244;
pub(crate) const FUNCTION: u8 = 245;
pub(crate) const FUNCTION_PRE_GA: u8 = 246;
pub(crate) const MODULE_AUX: u8 = 247;
pub(crate) const IDLE_TIME: u8 = 248;
pub(crate) const FREQUENCY: u8 = 249;
pub(crate) const AUX: u8 = 250;
pub(crate) const RESIZE_DB: u8 = 251;
pub(crate) const EXPIRE_TIME_MS: u8 = 252;
pub(crate) const EXPIRE_TIME: u8 = 253;
pub(crate) const SELECT_DB: u8 = 254;
pub(crate) const END: u8 = 255;
