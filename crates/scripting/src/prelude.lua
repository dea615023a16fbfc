-- The environment of scripts: read-only globals, and protected calls that do not catch the end of a script.
--
-- Runs once per machine, in Lua's own globals, which scripts never see. A protected table is an empty proxy
-- of the real one; functions that could change or expose a real one are replaced here.
local redis, libraries, caught, blame, compile, registrar, before_coroutine = ...

local error, getfenv, next, pairs, pcall, xpcall, rawget, rawset, setmetatable, tostring, type =
  error, getfenv, next, pairs, pcall, xpcall, rawget, rawset, setmetatable, tostring, type
local concat, insert, sort = table.concat, table.insert, table.sort
local create, resume, wrap = coroutine.create, coroutine.resume, coroutine.wrap
local gsub = libraries.string.gsub
local collectgarbage = collectgarbage

local READ_ONLY = 'Attempt to modify a readonly table'

-- The real tables, by their proxies.
local protected = {}

local function refuse()
  error(READ_ONLY, 2)
end

local function protect(real, metatable)
  local guard = setmetatable({}, { __index = real, __newindex = refuse, __metatable = metatable or false })
  protected[guard] = real
  return guard
end

-- What scripts see as the metatable of their globals.
local closed = protect({})

local function require_open(table)
  if protected[table] then
    error(READ_ONLY, 0)
  end
end

-- The results of a protected call. `caught` converts an error, or raises it again if the script must stop.
local function settled(ok, ...)
  if ok then
    return true, ...
  end
  return false, caught((...))
end

local open = {}
for name, value in pairs(string) do open[name] = value end
for name, value in pairs(libraries.string) do open[name] = value end
local string_guard = protect(open)
local strings = getmetatable('')
strings.__index = string_guard
strings.__metatable = protect(strings)

local tables = {}
for name, value in pairs(table) do tables[name] = value end
function tables.insert(table, ...)
  require_open(table)
  return insert(table, ...)
end

-- Raises the error for an argument of a type that the caller does not take.
local function bad_argument(position, name, wanted, value)
  local given = value == nil and 'no value' or type(value)
  local reason = wanted .. ' expected, got ' .. given
  error('bad argument #' .. position .. " to '" .. name .. "' (" .. reason .. ')', 3)
end

-- Functions of Lua and of the host have the globals of this chunk, those of scripts have others.
local own_globals = getfenv(1)

local function is_own(run)
  return getfenv(run) == own_globals
end

-- The meter counts instructions, and a library function that calls another one for each element of a table
-- executes none. So it gets a Lua function that calls the other one.
local function counted(run)
  return function(...)
    return run(...)
  end
end

for name, native in pairs({ foreach = table.foreach, foreachi = table.foreachi }) do
  tables[name] = function(table, run)
    if type(table) ~= 'table' then
      bad_argument(1, name, 'table', table)
    end
    if type(run) ~= 'function' then
      bad_argument(2, name, 'function', run)
    end
    return native(table, is_own(run) and counted(run) or run)
  end
end

-- Tables up to this length are sorted without a comparison function. A longer one could take for ever with an
-- inconsistent order, and Lua's sort can be stopped only in the comparison function.
local SORTED_ALONE_MAX = 64

local function less(left, right)
  return left < right
end

function tables.sort(table, before)
  if type(table) ~= 'table' then
    bad_argument(1, 'sort', 'table', table)
  end
  if before ~= nil then
    if type(before) ~= 'function' then
      bad_argument(2, 'sort', 'function', before)
    end
    if is_own(before) then
      before = counted(before)
    end
  end
  if before or #table <= SORTED_ALONE_MAX then
    sort(table, before)
    return
  end
  local ok, problem = pcall(sort, table, less)
  if not ok then
    problem = caught(problem)
    if type(problem) == 'string' then
      -- The line in the prelude is no position in the script.
      problem = gsub(problem, '^prelude:%d+: ', '')
    end
    error(problem, 0)
  end
end

local maths = {}
for name, value in pairs(math) do maths[name] = value end
for name, value in pairs(libraries.math) do maths[name] = value end

local coroutines = {}
for name, value in pairs(coroutine) do coroutines[name] = value end
function coroutines.resume(...)
  return settled(resume(...))
end

-- The body of a coroutine must not be a native function.
local function require_body(body, name)
  if type(body) ~= 'function' or is_own(body) then
    error("bad argument #1 to '" .. name .. "' (Lua function expected)", 3)
  end
end

function coroutines.create(body)
  require_body(body, 'create')
  before_coroutine()
  return create(body)
end

function coroutines.wrap(body)
  require_body(body, 'wrap')
  before_coroutine()
  return wrap(body)
end

-- Valkey calls it `server`.
local redis_guard = protect(redis)

local globals = {
  _VERSION = _VERSION,
  assert = assert,
  error = error,
  getmetatable = getmetatable,
  ipairs = ipairs,
  next = next,
  rawequal = rawequal,
  select = select,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack,
  string = string_guard,
  table = protect(tables),
  math = protect(maths),
  coroutine = protect(coroutines),
  redis = redis_guard,
  server = redis_guard,
  cjson = protect(libraries.cjson),
  cmsgpack = protect(libraries.cmsgpack),
  struct = protect(libraries.struct),
  bit = protect(libraries.bit),
  os = protect(libraries.os),
}

-- As in Redis, pcall returns only the text of an error table.
local function flattened(ok, ...)
  if ok then
    return true, ...
  end
  local problem = caught((...))
  if type(problem) == 'table' and type(rawget(problem, 'err')) == 'string' then
    problem = rawget(problem, 'err')
  end
  return false, problem
end

function globals.pcall(run, ...)
  return flattened(pcall(run, ...))
end

function globals.xpcall(run, handle)
  return settled(xpcall(run, function(problem) return handle(caught(problem)) end))
end

function globals.pairs(table)
  local real = protected[table]
  if not real then
    return pairs(table)
  end
  local copy = {}
  for name, value in next, real do copy[name] = value end
  return next, copy, nil
end

function globals.rawget(table, name)
  return rawget(protected[table] or table, name)
end

function globals.rawset(table, name, value)
  require_open(table)
  return rawset(table, name, value)
end

function globals.setmetatable(table, meta)
  require_open(table)
  return setmetatable(table, meta)
end

function globals.collectgarbage(wish)
  if wish == 'count' then
    return collectgarbage('count')
  end
  if wish == nil or wish == 'collect' then
    collectgarbage('collect')
  end
  return 0
end

function globals.gcinfo()
  return math.floor(collectgarbage('count'))
end

-- Source text only: bytecode could break out of the sandbox.
function globals.loadstring(text, name)
  return compile(text, name)
end

function globals.load(more, name)
  local parts = {}
  while true do
    local part = more()
    if part == nil or part == '' then
      return compile(concat(parts), name or '=(load)')
    end
    parts[#parts + 1] = part
  end
end

local strict = {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
}
setmetatable(globals, strict)
local guard = protect(globals, closed)
globals._G = guard

-- Libraries have other globals: functions those of scripts without KEYS and ARGV, code being loaded only a
-- `redis` that registers functions.
local called = {}
for name, value in pairs(globals) do called[name] = value end
setmetatable(called, strict)
registrar.log = redis.log
local registrar_guard = protect(setmetatable(registrar, strict))
local loading = setmetatable({ redis = registrar_guard, server = registrar_guard }, strict)
local seen = { __index = called, __newindex = refuse, __metatable = closed }
local library_guard = setmetatable({}, seen)
protected[library_guard] = called
called._G = library_guard

local function run(script, keys, args)
  globals.KEYS, globals.ARGV = keys, args
  return xpcall(script, blame)
end

local function load(library)
  return xpcall(library, blame)
end

local function run_with(script, keys, args)
  return xpcall(function() return script(keys, args) end, blame)
end

return guard, run, library_guard, load, run_with, seen, loading, called
