//! Passing over what is not read: what modules keep, what nodes of a cluster note.
//!
//! Each is walked through in full, because nothing but its structure says where it ends.

use crate::Error;
use crate::input::Input;

/// The parts of what a module has written, each after its number.
const MODULE_END: u64 = 0;
const MODULE_SIGNED: u64 = 1;
const MODULE_UNSIGNED: u64 = 2;
const MODULE_FLOAT: u64 = 3;
const MODULE_DOUBLE: u64 = 4;
const MODULE_STRING: u64 = 5;

/// What a module keeps beside keys: its id, when it was written, and parts until the end.
pub(super) fn module_aux(input: &mut impl Input) -> Result<(), Error> {
    // The id, then a part that says when.
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

/// Slots that a node of a cluster was taking over: who from, and ranges.
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
