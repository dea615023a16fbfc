//! Values that are added to tables. Text is added directly, without making a reference to a Lua string.

use mlua::{Either, Lua, Result, Table, Value};

/// An element of a table: text, or any other value.
pub(crate) type Word<'a> = Either<&'a str, Value>;

/// The string of these bytes.
#[inline]
pub(crate) fn string<'a>(lua: &Lua, bytes: &'a [u8]) -> Result<Word<'a>> {
    match str::from_utf8(bytes) {
        Ok(text) => Ok(Either::Left(text)),
        Err(_) => lua.create_string(bytes).map(|it| Either::Right(Value::String(it))),
    }
}

/// Makes a table of `len` elements returned by `read`, with space reserved for `room` of them.
///
/// # Errors
/// The first error of `read`; an error of Lua if it makes no table.
pub(crate) fn sequence<'a>(
    lua: &Lua,
    len: usize,
    room: usize,
    read: impl FnMut() -> Result<Word<'a>>,
) -> Result<Table> {
    let mut problem = None;
    let table = lua.create_sequence_from(Reading { left: len, room, read, problem: &mut problem })?;
    problem.map_or(Ok(table), Err)
}

/// Makes a table of `len` pairs returned by `read`. No key may be nil or NaN.
///
/// # Errors
/// The first error of `read`; an error of Lua if it makes no table.
pub(crate) fn pairs<'a>(
    lua: &Lua,
    len: usize,
    read: impl FnMut() -> Result<(Word<'a>, Word<'a>)>,
) -> Result<Table> {
    let mut problem = None;
    let table = lua.create_table_from(Reading { left: len, room: 0, read, problem: &mut problem })?;
    problem.map_or(Ok(table), Err)
}

/// An iterator over read values, up to the first error, which is stored in `problem`.
struct Reading<'p, F> {
    left: usize,
    room: usize,
    read: F,
    problem: &'p mut Option<mlua::Error>,
}

impl<T, F: FnMut() -> Result<T>> Iterator for Reading<'_, F> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        match (self.read)() {
            Ok(read) => Some(read),
            Err(problem) => {
                *self.problem = Some(problem);
                self.left = 0;
                None
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.room, None)
    }
}
