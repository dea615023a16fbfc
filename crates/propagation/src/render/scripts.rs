//! Scripts for effects that no command of Redis has. Each has one key.

/// Inserts `ARGV[2]` before the element at index `ARGV[1]`, or at the end if the index is the length. LINSERT
/// finds the first element with a given value. So if an equal element comes before the index, the script
/// temporarily replaces the element at the index by a value that the list does not have.
pub(super) const LIST_INSERT: &str = "\
local k,i=KEYS[1],tonumber(ARGV[1]) \
if redis.call('LLEN',k)==i then return redis.call('RPUSHX',k,ARGV[2]) end \
local p=redis.call('LINDEX',k,i) \
if not p then return end \
local m,c=p,0 \
if redis.call('LPOS',k,p)~=i then \
repeat m='m'..c c=c+1 until not redis.call('LPOS',k,m) \
redis.call('LSET',k,i,m) end \
redis.call('LINSERT',k,'BEFORE',m,ARGV[2]) \
if m~=p then redis.call('LSET',k,i+1,p) end";

/// Sets fields, in pairs with their values, and keeps their deadlines. On a server without HSETEX (such as
/// Redis before 8.0), HSET removes the deadlines, so they are set again. HPEXPIRETIME does not find a field
/// whose deadline has passed, as is possible on a replica that lags. Such a field gets the deadline 1, which
/// has passed, too.
pub(super) const HASH_UPDATE: &str = "\
local k,r=KEYS[1],redis.pcall('HSETEX',KEYS[1],'KEEPTTL','FIELDS',#ARGV/2,unpack(ARGV)) \
if type(r)~='table' or not r.err then return end \
local d={} \
for i=1,#ARGV,2 do local f=ARGV[i] \
local t=redis.pcall('HPEXPIRETIME',k,'FIELDS',1,f) \
if t.err then break end \
d[f]=t[1]==-2 and redis.call('HEXISTS',k,f)==1 and 1 or t[1] end \
redis.call('HSET',k,unpack(ARGV)) \
for f,t in pairs(d) do if t>0 then redis.call('HPEXPIREAT',k,t,'FIELDS',1,f) end end";

/// Sets the deadline `ARGV[1]` of the fields in the other arguments. HSET first removes the old deadlines: on
/// a replica that lags, an old deadline may have passed, and HPEXPIREAT does not find such a field. A server
/// without field expiry keeps the fields until they are deleted.
pub(super) const FIELD_EXPIRE: &str = "\
for i=2,#ARGV do local v=redis.call('HGET',KEYS[1],ARGV[i]) \
if v then redis.call('HSET',KEYS[1],ARGV[i],v) end end \
redis.pcall('HPEXPIREAT',KEYS[1],ARGV[1],'FIELDS',#ARGV-1,unpack(ARGV,2))";

/// Removes the deadlines of fields, with HSET: HPERSIST finds no field whose deadline has passed.
pub(super) const FIELD_PERSIST: &str = "\
for i=1,#ARGV do local v=redis.call('HGET',KEYS[1],ARGV[i]) \
if v then redis.call('HSET',KEYS[1],ARGV[i],v) end end";

/// Makes the group `ARGV[1]`, or sets its position: last id and entries read.
pub(super) const PUT_GROUP: &str = "\
local r=redis.pcall('XGROUP','CREATE',KEYS[1],ARGV[1],ARGV[2],'MKSTREAM','ENTRIESREAD',ARGV[3]) \
if type(r)=='table' and r.err then \
redis.call('XGROUP','SETID',KEYS[1],ARGV[1],ARGV[2],'ENTRIESREAD',ARGV[3]) end";

/// Restores a stream from `ARGV[2]`; a server that cannot read this newer form, such as Redis before 7.2,
/// restores it from `ARGV[3]`.
pub(super) const RESTORE: &str = "\
local k,t=KEYS[1],ARGV[1] \
local r=redis.pcall('RESTORE',k,t,ARGV[2],'REPLACE','ABSTTL') \
if type(r)=='table' and r.err then redis.call('RESTORE',k,t,ARGV[3],'REPLACE','ABSTTL') end";

/// Removes entries from a stream where none counts as deleted. The arguments are the last id of the stream,
/// the number of entries ever added, and the ids to remove. Entries at the beginning of the stream are
/// trimmed. If other entries have to be deleted, the highest deleted id is then set to 0-1, the lowest that
/// XSETID takes.
pub(super) const DELETE_WITHOUT_TRACE: &str = "\
local k,n,i=KEYS[1],#ARGV,3 \
for _,e in ipairs(redis.call('XRANGE',k,'-','+','COUNT',n-2)) do \
if e[1]~=ARGV[i] then break end i=i+1 end \
if i>3 then redis.call('XTRIM',k,'MAXLEN',redis.call('XLEN',k)-i+3) end \
if i<=n then redis.call('XDEL',k,unpack(ARGV,i)) \
redis.call('XSETID',k,ARGV[1],'ENTRIESADDED',ARGV[2],'MAXDELETEDID','0-1') end";
