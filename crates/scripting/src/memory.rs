//! The memory limit of the machine.
//!
//! While a limit is in force, mlua makes every call that may allocate in protected mode, which takes longer
//! than the allocation itself. So the limit is in force only while scripts are compiled and run, and is
//! lifted while values are built for which there certainly is room.

use mlua::{Lua, Result};

/// The maximum bytes of memory of a value per byte of its reply. The number is so high because an empty
/// status reply, which has three bytes, becomes a table.
const PER_BYTE: usize = 64;
/// In JSON and MessagePack, where one byte can be a table, a byte counts as this many bytes of a reply.
const DENSE_BYTES: usize = 4;
/// The maximum bytes of memory of a value in addition to [`PER_BYTE`] for each byte.
const BESIDE_BYTES: usize = 4096;

/// Runs `work` with a limit on the total memory: `bytes_max`, or the memory in use now if that is more.
pub(crate) fn limited<R>(lua: &Lua, bytes_max: usize, work: impl FnOnce() -> Result<R>) -> Result<R> {
    // A limit below the memory in use would make even a garbage collection fail.
    let before = lua.set_memory_limit(bytes_max.max(lua.used_memory()))?;
    let outcome = work();
    lua.set_memory_limit(before)?;
    outcome
}

/// Runs `work`, which builds values from `bytes` bytes of a reply. The limit is lifted if there is room even
/// for the largest values that so many bytes can become.
pub(crate) fn building<R>(lua: &Lua, bytes: usize, work: impl FnOnce() -> Result<R>) -> Result<R> {
    let before = lua.set_memory_limit(0)?;
    let needed = bytes.saturating_mul(PER_BYTE).saturating_add(BESIDE_BYTES);
    if lua.used_memory().saturating_add(needed) <= before {
        let outcome = work();
        lua.set_memory_limit(before)?;
        return outcome;
    }
    lua.set_memory_limit(before)?;
    work()
}

/// Does the same as [`building`], for JSON and MessagePack, in which one byte can be a nested table.
pub(crate) fn building_dense<R>(lua: &Lua, bytes: usize, work: impl FnOnce() -> Result<R>) -> Result<R> {
    building(lua, bytes.saturating_mul(DENSE_BYTES), work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_while_scripts_run_and_no_longer() {
        let lua = Lua::new();
        let long = "x".repeat(1 << 20);
        let build = || lua.create_string(&long).map(drop).and_then(|()| lua.gc_collect());
        assert!(limited(&lua, 1 << 20, build).is_err());
        assert!(build().is_ok());
        let room = lua.used_memory() + (1 << 20) * (PER_BYTE + 1);
        assert!(limited(&lua, room, || building(&lua, 1 << 20, build)).is_ok());
        assert!(limited(&lua, 1 << 20, || building(&lua, 1 << 20, build)).is_err(), "there is no room");
        assert!(
            limited(&lua, 1 << 20, || building(&lua, 1, || Ok(())).and_then(|()| build())).is_err(),
            "it is back"
        );
    }

    /// The replies that take the most memory per byte, and others.
    #[test]
    fn no_reply_exceeds_its_estimated_memory() {
        let replies =
            ["+\r\n", "-\r\n", "*0\r\n", "*1\r\n*0\r\n", "_\r\n", ":1\r\n", "$0\r\n\r\n", ",1\r\n", "(1\r\n"];
        let pairs = ["%1\r\n:1\r\n*0\r\n", "~1\r\n:1\r\n", "=4\r\ntxt:\r\n"];
        let (lua, count) = (Lua::new(), 10_000);
        lua.gc_stop();
        for element in replies.iter().chain(&pairs) {
            let reply = format!("*{count}\r\n{}", element.repeat(count));
            let before = lua.used_memory();
            let _value = crate::reply::to_lua(&lua, reply.as_bytes()).expect("a reply");
            assert!(lua.used_memory() - before <= reply.len() * PER_BYTE, "{element:?}");
        }
        let many = |head: &str, each: fn(usize) -> String| {
            let body: String = (0..count).map(each).collect();
            format!("{head}{count}\r\n{body}")
        };
        for reply in [many("%", |n| format!(":{n}\r\n:1\r\n")), many("~", |n| format!(":{n}\r\n"))] {
            let before = lua.used_memory();
            let _value = crate::reply::to_lua(&lua, reply.as_bytes()).expect("a reply");
            assert!(lua.used_memory() - before <= reply.len() * PER_BYTE, "{:?}", &reply[..1]);
        }
    }

    /// Tests the same for texts with nested tables and with elements of one byte.
    #[test]
    fn no_text_exceeds_its_estimated_memory() {
        let lua = Lua::new();
        lua.gc_stop();
        let library = crate::msgpack::library(&lua, &crate::Meter::default(), 1 << 30).expect("a library");
        let unpack: mlua::Function = library.get("unpack").expect("a function");
        let list = |element: &[u8]| [&b"\xdd\x00\x00\x27\x10"[..], &element.repeat(10_000)].concat();
        let deep = [&[0x91; 90][..], b"\x01"].concat();
        let numbers = (0..10_000u16).flat_map(|n| [&b"\xcd"[..], &n.to_be_bytes(), b"\x01"].concat());
        let map = b"\xdf\x00\x00\x27\x10".iter().copied().chain(numbers).collect();
        let elements: [&[u8]; 5] = [b"\x01", b"\x80", b"\x90", b"\xa0", b"\x81\x01\x80"];
        for bytes in elements.into_iter().map(list).chain([deep, map]) {
            let (text, before) = (lua.create_string(&bytes).expect("a string"), lua.used_memory());
            let _value: mlua::Value = unpack.call(text).expect("values");
            let taken = lua.used_memory() - before;
            assert!(taken <= bytes.len() * PER_BYTE * DENSE_BYTES, "{:?}: {taken}", &bytes[..8]);
        }
    }
}
