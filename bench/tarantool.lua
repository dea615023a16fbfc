-- Tarantool as the benchmarks start it: recovers DIR, then listens on PORT of the loopback interface with its
-- text console, through which the harness calls the functions below. No client can connect before recovery is
-- complete.
--
--     tarantool tarantool.lua DIR PORT WAL_MODE LISTEN [LEADER]        WAL_MODE: none, write
--
-- LISTEN is the port for replicas, LEADER the port of the leader if this server is a replica.
-- The rows are those of fill.py: same numbers, same values.

local bit = require('bit')
local fiber = require('fiber')
local directory, port, wal_mode, listen, leader = arg[1], arg[2], arg[3], arg[4], arg[5]

box.cfg{
    work_dir = directory,
    wal_mode = wal_mode,
    -- A limit: reserved, but used only when needed.
    memtx_memory = 6 * 1024 * 1024 * 1024,
    -- Only requested snapshots.
    checkpoint_interval = 0,
    checkpoint_count = 1,
    log_level = 'warn',
    listen = '127.0.0.1:' .. listen,
    replication = leader and 'guest@127.0.0.1:' .. leader or nil,
    read_only = leader ~= nil,
}
if not leader then
    box.schema.user.grant('guest', 'replication', nil, nil, {if_not_exists = true})
end

-- Writers that wait for the log at the same time, so that it takes their rows in one write.
local WRITERS = 50

local ROWS = {
    -- Ten unsigned columns, the number itself being the first.
    hashes = {
        key = function(number) return number end,
        key_type = 'unsigned',
        tuple = function(number)
            local fields = {number}
            for field = 1, 9 do
                local x = number % 100000 * 10 + field
                fields[field + 1] = (x * x * 31 + x * 977) % 99991 % 10000
            end
            return fields
        end,
    },
    strings = {
        key = function(number) return string.format('key:%08d', number) end,
        key_type = 'string',
        tuple = function(number)
            local high, low = number * 0x9E3779B97F4A7C15ULL, number * 0xC2B2AE3D27D4EB4FULL
            return {string.format('key:%08d', number), bit.tohex(high) .. bit.tohex(low)}
        end,
    },
}

-- Puts rows 0..count of one kind into a space of that name, one transaction each.
function fill(kind, count)
    local rows = ROWS[kind]
    local space = box.schema.space.create(kind)
    space:create_index('primary', {type = 'TREE', parts = {1, rows.key_type}})
    local writers = {}
    for writer = 1, WRITERS do
        writers[writer] = fiber.new(function()
            for number = writer - 1, count - 1, WRITERS do
                space:replace(rows.tuple(number))
            end
        end)
        writers[writer]:set_joinable(true)
    end
    for _, writer in ipairs(writers) do
        local succeeded, failure = writer:join()
        if not succeeded then
            error(failure)
        end
    end
    return 'filled'
end

-- 'complete' if all rows are there and some checked ones are correct.
function check(kind, count)
    local space, rows = box.space[kind], ROWS[kind]
    if space:len() ~= count then
        return string.format('%d rows instead of %d', space:len(), count)
    end
    for number = 0, count - 1, math.max(math.floor(count / 7), 1) do
        local found, expected = space:get{rows.key(number)}, rows.tuple(number)
        for column = 1, #expected do
            if found == nil or found[column] ~= expected[column] then
                return string.format('row %d is not what was written', number)
            end
        end
    end
    return 'complete'
end

-- Replaces `count` rows of two columns at random numbers below `keys`, `together` of them in one transaction.
-- The first call puts rows at all of these numbers.
function write(count, keys, together, value_bytes)
    local value = string.rep('x', value_bytes)
    local space = box.space.written
    if space == nil then
        space = box.schema.space.create('written')
        space:create_index('primary', {type = 'TREE', parts = {1, 'unsigned'}})
        for first = 1, keys, 1000 do
            box.begin()
            for number = first, math.min(first + 999, keys) do
                space:replace{number, value}
            end
            box.commit()
        end
    end
    local writers = {}
    for writer = 1, WRITERS do
        writers[writer] = fiber.new(function()
            for _ = 1, math.ceil(count / together / WRITERS) do
                box.begin()
                for _ = 1, together do
                    space:replace{math.random(keys), value}
                end
                box.commit()
            end
        end)
        writers[writer]:set_joinable(true)
    end
    for _, writer in ipairs(writers) do
        local succeeded, failure = writer:join()
        if not succeeded then
            error(failure)
        end
    end
    return 'written'
end

-- The position of the leader's log that is here, and whether a leader is followed: 'up' or 'down'.
function position()
    local link = 'down'
    for _, other in pairs(box.info.replication) do
        if other.upstream ~= nil and (other.upstream.status == 'follow' or other.upstream.status == 'sync') then
            link = 'up'
        end
    end
    return string.format('%d %s', tonumber(box.info.signature), link)
end

require('console').listen('127.0.0.1:' .. port)
