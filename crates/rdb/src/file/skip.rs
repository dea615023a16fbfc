//! Skips data that is not read: data of modules, and notes of cluster nodes. Such data is parsed in full,
//! because its end can only be found from its structure.

use crate::Error;
use crate::input::Input;

/// The types of the parts of module data, each written before its part.
const MODULE_END: u64 = 0;
const MODULE_SIGNED: u64 = 1;
const MODULE_UNSIGNED: u64 = 2;
const MODULE_FLOAT: u64 = 3;
const MODULE_DOUBLE: u64 = 4;
const MODULE_STRING: u64 = 5;

/// Skips module data that belongs to no key: the module's id, the time of writing, and parts up to
/// [`MODULE_END`].
pub(super) fn module_aux(input: &mut impl Input) -> Result<(), Error> {
    // Skips the id, and the part with the time of writing.
    numbers(input, 3)?;
    let mut string = Vec::new();
    loop {
        match input.number()? {
            MODULE_END => return Ok(()),
            MODULE_SIGNED | MODULE_UNSIGNED => _ = input.number()?,
            MODULE_FLOAT => _ = input.array::<4>()?,
            MODULE_DOUBLE => _ = input.array::<8>()?,
            MODULE_STRING => input.string(&mut string)?,
            _ => return Err(Error::Malformed("module data")),
        }
    }
}

/// Skips slots that a cluster node was importing: a job name, and ranges of slots.
pub(super) fn slot_import(input: &mut impl Input) -> Result<(), Error> {
    strings(input, 1, &mut Vec::new())?;
    for _ in 0..input.number()? {
        numbers(input, 2)?;
    }
    Ok(())
}

pub(super) fn numbers(input: &mut impl Input, count: usize) -> Result<(), Error> {
    (0..count).try_for_each(|_| input.number().map(drop))
}

fn strings(input: &mut impl Input, count: usize, buffer: &mut Vec<u8>) -> Result<(), Error> {
    (0..count).try_for_each(|_| input.string(buffer))
}
