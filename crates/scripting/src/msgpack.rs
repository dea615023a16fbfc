//! `cmsgpack`: Lua values as MessagePack and back.

mod pack;
mod unpack;

use mlua::{Lua, MultiValue, Result, String as LuaString, Table, Value, Variadic};

use crate::{
    error::function,
    memory::building_dense,
    meter::{Meter, Steps},
};

/// Maximum nesting of packed tables. Tables that are nested deeper become nil, as in Redis.
const PACK_DEPTH_MAX: usize = 16;

/// Maximum nesting of unpacked values.
const UNPACK_DEPTH_MAX: usize = 100;

/// The library `cmsgpack`. A packed string has at most `bytes_max` bytes, plus one element.
pub(crate) fn library(lua: &Lua, meter: &Meter, bytes_max: usize) -> Result<Table> {
    let table = lua.create_table()?;
    table.set("_NAME", "cmsgpack")?;
    table.set("_VERSION", "lua-cmsgpack 0.4.0")?;
    table.set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    let watched = meter.clone();
    let packed = function(lua, "pack", move |lua, values: Variadic<Value>| {
        if values.is_empty() {
            return Err(mlua::Error::runtime("bad argument #0 to 'pack' (MessagePack pack needs input.)"));
        }
        let (mut out, mut steps) = (Vec::new(), Steps::new(&watched));
        for value in values {
            pack::pack(&value, 0, bytes_max, &mut steps, &mut out)?;
        }
        lua.create_string(&out)
    })?;
    table.set("pack", packed)?;
    let watched = meter.clone();
    let all = function(lua, "unpack", move |lua, bytes: LuaString| {
        let bytes = bytes.as_bytes();
        building_dense(lua, bytes.len(), || Ok(unpack::unpack(lua, &bytes, 0, usize::MAX, &watched)?.0))
    })?;
    table.set("unpack", all)?;
    let watched = meter.clone();
    let one = function(lua, "unpack_one", move |lua, (bytes, offset): (LuaString, Option<i64>)| {
        some(lua, &bytes, 1, offset.unwrap_or(0), &watched)
    })?;
    table.set("unpack_one", one)?;
    let watched = meter.clone();
    let limited =
        function(lua, "unpack_limit", move |lua, (bytes, limit, offset): (LuaString, i64, Option<i64>)| {
            some(lua, &bytes, limit, offset.unwrap_or(0), &watched)
        })?;
    table.set("unpack_limit", limited)?;
    Ok(table)
}

/// Decodes up to `limit` values (0 means all) from `offset` on. The first result is the offset of the next
/// value, or -1 at the end.
fn some(lua: &Lua, bytes: &LuaString, limit: i64, offset: i64, meter: &Meter) -> Result<MultiValue> {
    let bytes = bytes.as_bytes();
    let (Ok(limit), Ok(offset)) = (usize::try_from(limit), usize::try_from(offset)) else {
        return Err(mlua::Error::runtime(format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            bytes.len()
        )));
    };
    if offset > bytes.len() {
        return Err(mlua::Error::runtime(format!(
            "Start offset {offset} greater than input length {}.",
            bytes.len()
        )));
    }
    let limit = if limit == 0 { usize::MAX } else { limit };
    let (mut values, end) =
        building_dense(lua, bytes.len(), || unpack::unpack(lua, &bytes, offset, limit, meter))?;
    values.push_front(Value::Integer(if end == bytes.len() { -1 } else { end as i64 }));
    Ok(values)
}

/// For fuzzing: unpacks bytes, and packs the resulting values. Returns whether they unpack.
///
/// # Panics
///
/// If the values cannot be packed, or not unpacked again.
pub fn check(bytes: &[u8]) -> bool {
    let (lua, meter) = (Lua::new(), Meter::default());
    let Ok((values, _)) = unpack::unpack(&lua, bytes, 0, usize::MAX, &meter) else { return false };
    let (mut out, mut steps) = (Vec::new(), Steps::new(&meter));
    for value in &values {
        pack::pack(value, 0, 1 << 20, &mut steps, &mut out).expect("what was unpacked can be packed");
    }
    let again = unpack::unpack(&lua, &out, 0, usize::MAX, &meter);
    let again = again.expect("what was packed can be unpacked");
    assert_eq!(again.0.len(), values.len());
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::testing::TestVm;

    #[test]
    fn values_have_their_shortest_form() {
        let mut vm = TestVm::new();
        let table = [
            ("nil", "c0"),
            ("true, false", "c3c2"),
            ("0, 127, -1, -32", "007fffe0"),
            ("128, 256, 65536, 4294967296", "cc80cd0100ce00010000cf0000000100000000"),
            ("-33, -129, -32769, -2147483649", "d0dfd1ff7fd2ffff7fffd3ffffffff7fffffff"),
            ("1.5", "ca3fc00000"),
            ("0.1", "cb3fb999999999999a"),
            ("'abc'", "a3616263"),
            ("{1, 2}", "920102"),
            ("{}", "90"),
            ("{a = 1}", "81a16101"),
        ];
        for (values, expected) in table {
            let script = format!(
                "return (cmsgpack.pack({values}):gsub('.', function(c) return ('%02x'):format(c:byte()) end))"
            );
            assert_eq!(vm.eval(&script, &[], &[]), format!("\"{expected}\""), "{values}");
        }
    }

    #[test]
    fn packed_values_are_unpacked() {
        let mut vm = TestVm::new();
        let script = "local a, b, c = cmsgpack.unpack(cmsgpack.pack(1, 'x', {k = {1, 2, -3.25}})) \
                      return {a, b, c.k[1], c.k[2], tostring(c.k[3])}";
        assert_eq!(vm.eval(script, &[], &[]), r#"[:1, "x", :1, :2, "-3.25"]"#);
        let script = "local s = cmsgpack.pack(7, 8) local o, v = cmsgpack.unpack_one(s) \
                      local p, w = cmsgpack.unpack_one(s, o) return {o, v, p, w}";
        assert_eq!(vm.eval(script, &[], &[]), "[:1, :7, :-1, :8]");
    }

    #[test]
    fn invalid_messagepack_is_refused() {
        let mut vm = TestVm::new();
        let table = [
            ("'\\221\\255\\255\\255\\255'", "Missing bytes in input."),
            ("'\\163ab'", "Missing bytes in input."),
            ("'\\193'", "Bad data format in input."),
            ("('\\145'):rep(5000) .. '\\192'", "Bad data format in input."),
        ];
        for (bytes, expected) in table {
            let script = format!("local ok, e = pcall(cmsgpack.unpack, {bytes}) return e");
            let shown = vm.eval(&script, &[], &[]);
            assert!(shown.contains(expected), "{bytes}: {shown}");
        }
        let own = "local t = {} t[1] = t return #cmsgpack.pack(t)";
        assert_eq!(vm.eval(own, &[], &[]), ":17", "what is too deep is nil");
    }

    proptest! {
        #[test]
        fn no_bytes_do_harm(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            super::check(&bytes);
        }
    }
}
